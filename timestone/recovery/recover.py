"""Recovery of a log that was not closed: quarantine what fails its checks, seal the rest, report what was found. The
scan that decides is in `log_scan.py`.

Nothing is deleted: bytes that are cut off are first copied to `.lost` files, and files that cannot be served are
renamed to `.lost`. On a full or read-only disk nothing is written, the verified prefix is served from the files as they
are, and the next open tries to seal it again.

    sealed                      trusted
    closed                      served as it is, and continued by the next append
    unclosed                    sealed at its last verified record
    torn                        the tail is copied to `.lost`, then the segment is sealed before it
    damaged                     sealed as it is: reading a damaged record raises CorruptRecord, its neighbours are whole
    orphan                      renamed to `.lost`

If offsets that readers have seen may be lost (the system was restarted, or durable records are missing), the next
record gets the offset of the reserve ceiling and the epoch is incremented: no offset is assigned twice."""

import errno
import functools
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from timestone.config import Recovery
from timestone.errors import CorruptLog, LogFailed
from timestone.format import names
from timestone.format.failed_fsync_marker import (
    clear_failed_fsync,
    copy_anew,
    has_failed_fsync,
    mark_failed_fsync,
)
from timestone.format.folder_listing import halves_aside, known_missing, listed_bases
from timestone.format.quarantine import Quarantine
from timestone.format.topics import TopicDictionary
from timestone.kernel.entries import entry_position
from timestone.recovery.deferred_seals import DeferredSeals, may_wait
from timestone.recovery.log_scan import continuation, replica_continuation, scan_log, topics_in_use
from timestone.recovery.segment_report import SegmentScan, State, describe, described
from timestone.writing.active_segment import ClosedSegment, LogPlace
from timestone.writing.sealing import SegmentFacts, seal_index
from timestone.writing.segment_swap import remove_replaced

_LOGGER = logging.getLogger("timestone")


@dataclass(frozen=True, slots=True)
class Recovered:
    """Result of opening one log."""

    log: str
    partition: int
    scans: tuple[SegmentScan, ...]
    """Segments to serve, in order of offset; `trailer` is set for sealed ones."""
    next_offset: int
    epoch: int
    last_timestamp_us: int
    notes: tuple[str, ...]
    """One sentence for each deviation from a cleanly closed log."""
    deferred_seals: DeferredSeals | None = None
    """The segments that are not durable yet; None if all are."""
    ceiling: int = 0
    """No reader of this replica has seen an offset at or above it; 0 for a log that is not one."""

    @property
    def closed(self) -> ClosedSegment | None:
        """Return the segment that the last owner closed for the next one to continue, the last of `scans`."""
        last = self.scans[-1] if self.scans else None
        if last is None or last.state is not State.CLOSED or last.header is None or last.checkpoint is None:
            return None
        return ClosedSegment(last.header, last.checkpoint)

    def __str__(self) -> str:
        return f"{self.log}-{self.partition}: {'; '.join(self.notes)}"


class LogRecovery:
    """Recovery of one log folder. The caller holds the lock of the store."""

    def __init__(self, place: LogPlace, topics: TopicDictionary, mode: Recovery) -> None:
        self._place = place
        self._is_replicated = place.is_replicated
        files, folder = self._files, self._folder = place.files, place.folder
        self._topics = topics
        self._strict = mode is Recovery.STRICT
        self._notes: list[str | SegmentScan] = []
        self._lost_files = Quarantine(files, folder)
        self._doubted = has_failed_fsync(files, folder)
        self._remember: Callable[[], bool] = lambda: True
        self._waiting: list[SegmentScan] = []
        """Segments that are served but may not be durable, or that must still be put aside."""
        self._refusal: OSError | None = None
        """Why a segment could not be copied after a failed flush, or could not be put aside; None if none failed."""

    def run(
        self,
        *,
        least_next_offset: int = 0,
        least_epoch: int = 0,
        remember: Callable[[int, int], bool] = lambda next_offset, epoch: True,
        progress: Callable[[int, int], None] = lambda done, count: None,
        at_once: bool = True,
    ) -> Recovered:
        """Scan, repair and report.

        remember: makes a next offset (of a replica, its ceiling) and epoch durable outside the folder; returns False if
        it cannot. Called before any change: an interrupted repair may remove the segments that determine them.
        progress: called with the number of scanned segments and of all, before the first, after each, and after each
        repair. at_once: False to defer segments that only need a flush and a seal, as `deferred_seals`.
        Raises CorruptLog in strict mode if the log was not closed cleanly, or for files of the other kind (a replica or
        not), without a change; UnsupportedFormat; OSError if files cannot be read; LogFailed if a flush fails."""
        present = self._files.names(self._folder)
        bases, strangers = listed_bases(present)
        if strangers:
            self._notes.append(f"ignored foreign files: {', '.join(strangers)}")
        identity = self._topics.identity
        scans = scan_log(self._files, self._folder, bases, identity.log_id, len(self._topics), progress)
        self._check_kind(scans)
        unclean = self._unclean(scans)
        if self._strict:
            self._check_clean(scans, unclean)
        gone = self._gone(scans, present, least_next_offset, least_epoch)
        proceed = replica_continuation if self._is_replicated else continuation
        next_offset, epoch, jumps = proceed(scans, least_next_offset, least_epoch, self._place.boot_id)
        ceiling = self._ceiling(scans, next_offset)
        if ceiling > next_offset or (epoch > least_epoch and not self._is_replicated):
            self._remember = functools.partial(remember, max(ceiling, next_offset), epoch)
        for scan in unclean:
            if scan.state is State.CLOSED:
                scan.state = State.UNCLOSED
        if jumps:
            where = f"the next offset is {next_offset} in epoch {epoch}"
            self._notes.append(f"{where}, so that none is assigned twice")
        if not self._strict:
            self._remove_temporaries(present, scans, beside_orphans=False)
            self._note_missing(scans, gone, next_offset, present)
        waits = not at_once and self._may_wait(unclean)
        done = functools.partial(progress, len(scans), len(scans))
        served = self._defer(scans, unclean) if waits else self._make_durable(scans, done)
        if not self._strict:
            self._remove_temporaries(present, scans, beside_orphans=True)
            self._remove_replaced(served)
        waiting = sorted(self._waiting, key=attrgetter("base_offset"))
        return Recovered(
            identity.name,
            identity.partition,
            tuple(served),
            next_offset,
            epoch,
            max((scan.last_timestamp_us for scan in served), default=0),
            described(self._notes),
            DeferredSeals(waiting, self._settle) if waiting else None,
            ceiling,
        )

    def _ceiling(self, scans: list[SegmentScan], next_offset: int) -> int:
        """Return where a store of its own would continue: behind all offsets that readers of a replica have seen."""
        if not self._is_replicated:
            return 0
        # What was acknowledged may be in the page cache alone, which a failed flush has emptied as a boot does.
        boot_id = b"" if self._doubted else self._place.boot_id
        return continuation(scans, next_offset, 0, boot_id).next_offset

    def _check_kind(self, scans: list[SegmentScan]) -> None:
        for scan in scans:
            header = scan.header
            if header is None or header.is_replicated == self._is_replicated:
                continue
            if not header.is_replicated and header.known_epoch is None:  # damaged: rewritten as a replica's
                scan.header = header._replace(is_replicated=True)
            else:
                why = "is not" if self._is_replicated else "is"
                message = f"the log {why} a replica of a cluster, and only a node opens replicas"
                raise CorruptLog(names.index_path(self._folder, scan.base_offset), message)

    def _gone(
        self, scans: list[SegmentScan], present: Sequence[str], least_next_offset: int, least_epoch: int
    ) -> tuple[int, int] | None:
        """Return the offsets of missing segments after the last, which the catalogue proves. Raises CorruptLog in
        strict mode, unless an earlier recovery recorded them."""
        gone = scans[-1].lost_behind(least_next_offset, least_epoch) if scans else None
        if gone is not None and gone not in known_missing(present):
            why = f"no segment holds offsets {gone[0]} to {gone[1] - 1}, which were assigned"
            if self._strict:
                raise CorruptLog(self._folder, f"{why}, and recovery is 'strict'")
            self._notes.append(why)
        return gone

    def _unclean(self, scans: list[SegmentScan]) -> list[SegmentScan]:
        """Return the segments to seal or put aside. A closed one is continued only at the end of the log: behind it,
        the next owner has begun another, and ended before it sealed this one."""
        last = next((scan for scan in reversed(scans) if scan.serves), None)
        kept = None if self._doubted else last
        return [
            scan for scan in scans if not scan.is_clean or (scan.state is State.CLOSED and scan is not kept)
        ]

    def _check_clean(self, scans: list[SegmentScan], unclean: list[SegmentScan]) -> None:
        """Raise CorruptLog if the log was not closed cleanly."""
        if unclean:
            first = unclean[0]
            path = names.index_path(self._folder, first.base_offset)
            raise CorruptLog(path, f"the log was not closed ({describe(first)}) and recovery is 'strict'")
        if self._doubted:
            path = self._folder / names.DOUBT_NAME
            raise CorruptLog(
                path, "records of a failed flush were not copied to new files, and recovery is 'strict'"
            )
        if wrong := self._wrong_with_topics(scans):
            raise CorruptLog(self._topics.path, f"{wrong}, and recovery is 'strict'")

    def _wrong_with_topics(self, scans: list[SegmentScan]) -> str:
        """Return what is wrong with the topic dictionary; empty if it was closed cleanly."""
        topics = self._topics
        if topics.damaged_header:
            return "the header page is damaged"
        if topics.torn_bytes:
            return f"the last {topics.torn_bytes} bytes are not a complete name"
        lost = topics_in_use(scans) - len(topics)
        return f"the last {lost} names are lost" if lost > 0 else ""

    def _may_wait(self, unclean: list[SegmentScan]) -> bool:
        """Return whether the log only needs flushes and seals."""
        topics = self._topics
        mended = topics.torn_bytes or topics.damaged_header or self._doubted
        return bool(unclean) and not mended and all(map(may_wait, unclean))

    def _defer(self, scans: list[SegmentScan], unclean: list[SegmentScan]) -> list[SegmentScan]:
        """Serve all segments now, and leave the unclean ones to `_settle`."""
        self._take_topics(scans)
        self._notes += unclean
        self._waiting = unclean
        return scans

    def _settle(self) -> None:
        """Make the deferred segments durable. Raises OSError, with the segments still deferred; LogFailed."""
        waiting, self._waiting, self._refusal = self._waiting, [], None
        try:
            self._make_durable(waiting)
            if self._refusal is not None:
                raise self._refusal
        except BaseException:
            self._waiting = waiting
            raise

    def _make_durable(
        self, scans: list[SegmentScan], progress: Callable[[], None] = lambda: None
    ) -> list[SegmentScan]:
        """Repair, flush and seal every segment, or put it aside. Return those to serve. Raises LogFailed, OSError."""
        if not self._remember():
            self._notes.append("the catalogue cannot be written, so nothing was repaired")
            error = OSError(errno.EROFS, "the catalogue cannot be written", str(self._folder))
            self._refuse(error)
            self._await_removal(scans, error)
            self._take_topics(scans)
            served = [scan for scan in scans if scan.serves]
            for scan in served:
                if not scan.is_clean:
                    self._flush_unsealed(scan)
            return served
        if not self._strict:
            self._repair_topics(scans)
        # Segments to put aside first, newest first: an interrupted repair then leaves no record after a gap.
        going = [scan for scan in reversed(scans) if not scan.serves]
        served = []
        staying = [scan for scan in scans if scan.serves]
        for scan in [*going, *staying]:
            unclean = not scan.is_clean
            if self._repair(scan) is not None:
                served.append(scan)
            if unclean:
                progress()
        if self._doubted and not self._waiting and self._refusal is None:
            self._trust_again()
        return served

    def _trust_again(self) -> None:
        try:
            clear_failed_fsync(self._files, self._folder)
        except OSError as error:
            self._notes.append(f"could not remove {names.DOUBT_NAME}: {error}")

    def _repair(self, scan: SegmentScan) -> SegmentScan | None:
        """Repair one segment. Return None if it has no record to serve."""
        if scan.is_clean:
            return scan
        self._notes.append(scan)
        try:
            if not scan.serves:
                self._put_aside(scan)
                return None
            if self._refusal is not None:
                raise self._refusal
            if scan.lost_bytes or scan.lost_count:
                self._copy_tail_aside(scan)
            self._seal(scan)
        except OSError as error:
            # A full or read-only disk: serve the verified prefix from the files as they are.
            done = "seal" if scan.serves else "put aside"
            rest = "; it is served unsealed" if scan.serves else ""
            self._notes.append(f"could not {done} {scan.base_offset:020d} ({error}){rest}")
            _LOGGER.warning("%s: %s", self._folder, self._notes[-1])
            if not scan.serves:
                self._await_removal([scan], error)
                return None
            self._refuse(error)
            self._flush_unsealed(scan)
        return scan

    def _refuse(self, error: OSError) -> None:
        """Keep the marker of a failed flush when its records could not be copied."""
        if self._doubted:
            self._refusal = error

    def _await_removal(self, scans: Sequence[SegmentScan], error: OSError) -> None:
        """Defer all seals until segments that were never durable are put aside: next to a sealed segment, the next open
        would take them for durable ones."""
        # A later scan could find records to serve in them.
        staying = [scan for scan in scans if scan.header is not None and not (scan.serves or scan.superseded)]
        if staying:
            self._waiting += staying
            self._refusal = error

    def _flush_unsealed(self, scan: SegmentScan) -> None:
        """Flush a segment that is served unsealed, because readers may rely on what they have read. After a failed
        flush the segment is deferred until it can be copied: a second fsync of the same files proves nothing. Raises
        LogFailed."""
        if self._refusal is not None:
            self._waiting.append(scan)
            return
        for path in (
            names.segment_path(self._folder, scan.base_offset, scan.generation),
            names.index_path(self._folder, scan.base_offset),
        ):
            with self._files.opened(path) as fd:
                self._flush(functools.partial(self._files.fdatasync, fd))

    def _seal(self, scan: SegmentScan) -> None:
        assert scan.header is not None
        path = names.segment_path(self._folder, scan.base_offset, scan.generation)
        stored_bytes = scan.segment_file_bytes if scan.frames else scan.segment_bytes
        self._flush_segment(path, stored_bytes)
        scan.trailer = seal_index(
            self._files,
            scan.header,
            self._folder,
            SegmentFacts(scan.count, scan.segment_bytes, scan.generation, stored_bytes, scan.frames),
            self._place.now_us(),
            recovered=True,
        )

    def _flush_segment(self, path: Path, size_bytes: int) -> None:
        """Truncate the segment file to its verified bytes and flush it; the caller rewrites the index.

        Raises LogFailed when the flush fails: another open could then report lost records as durable.
        """
        if self._doubted:
            copy_anew(self._files, path, size_bytes)
            return
        with self._files.opened(path, write=True) as fd:
            if self._files.size(fd) >= size_bytes:  # of the same size it may have blocks allocated ahead
                self._files.truncate(fd, size_bytes)
            self._flush(lambda: self._files.fdatasync(fd))

    def _flush(self, flush: Callable[[], None]) -> None:
        try:
            flush()
        except OSError as error:
            with suppress(OSError):  # the disk may refuse the marker too
                mark_failed_fsync(self._files, self._folder)
            raise LogFailed(self._folder, error) from error

    def _put_aside(self, scan: SegmentScan) -> None:
        """Rename the files of a segment without records to serve; remove those that never held a record."""
        present = self._files.names(self._folder)
        mine = [name for name in present if names.parse_pair_base(name) == scan.base_offset]
        index_first = sorted(mine, key=lambda name: not name.endswith(names.INDEX_SUFFIX))
        nothing_lost = not (scan.lost_bytes or scan.lost_count or scan.reason)
        no_bytes = scan.state is State.ORPHAN and scan.segment_file_bytes == 0
        empty = not scan.loss_proven and (nothing_lost or no_bytes)
        for path in (self._folder / name for name in index_first):
            if empty:
                self._files.unlink(path)
            else:
                self._lost_files.keep(path)
        self._lost_files.sync()

    def _copy_tail_aside(self, scan: SegmentScan) -> None:
        """Copy the torn tail to `.lost` files and flush them, before it is cut off."""
        if scan.lost_bytes:
            path = names.segment_path(self._folder, scan.base_offset, scan.generation)
            self._lost_files.copy(path, 0 if scan.frames else scan.segment_bytes)
        if scan.lost_count:
            path = names.index_path(self._folder, scan.base_offset)
            self._lost_files.copy(path, entry_position(scan.count))
        self._lost_files.sync()

    def _repair_topics(self, scans: list[SegmentScan]) -> None:
        topics = self._topics
        self._take_topics(scans)
        try:
            if topics.torn_bytes:
                # Names are written before the records that use them, so no record uses these.
                self._notes.append(f"cut {topics.torn_bytes} torn bytes off the topic dictionary")
                self._lost_files.copy(topics.path, topics.end_position)
                self._lost_files.sync()
                topics.cut()
            if topics.damaged_header:
                self._notes.append("rewrote the damaged header of the topic dictionary")
                topics.rewrite_header()
            topics.write_added()  # record in the file which ids have lost their names
            if self._doubted:
                topics.copy_anew()
                self._files.sync_directory(self._folder)
        except OSError as error:
            self._refuse(error)
            self._notes.append(f"could not repair the topic dictionary: {error}")
        if not all(scan.is_clean for scan in scans):
            self._flush(topics.sync)  # names become durable before the records that use them are sealed

    def _take_topics(self, scans: list[SegmentScan]) -> None:
        """Reserve every topic id that a record uses."""
        self._topics.take_up_to(topics_in_use(scans))
        if self._topics.lost_count:
            self._notes.append(
                f"{self._topics.lost_count} topic names are lost; their records are served without a topic"
            )

    def _note_missing(
        self, scans: list[SegmentScan], gone: tuple[int, int] | None, next_offset: int, present: Sequence[str]
    ) -> None:
        """Record in the folder which offsets were lost by damage, before the files that show it are put aside. Readers
        then raise OffsetsLost for them, but not for offsets that a power loss skipped. gone: offsets of missing
        segments after the last."""
        # One file of a pair whose other file was put aside or never renamed: that recovery recorded any damage.
        halves = halves_aside(present)
        if scans and self._is_replicated:  # it continues at what it has lost, and has to know that for good
            next_offset = max(0, scans[-1].promised_offset, *(one.end_offset for one in scans if one.serves))
        following = [*(scan.base_offset for scan in scans[1:]), next_offset]
        lost = [
            names.missing_path(self._folder, *found)
            for scan, end in zip(scans, following, strict=False)
            if (found := scan.lost_range(end)) is not None
            and not (scan.state is State.ORPHAN and scan.base_offset in halves)
        ]
        if gone is not None:
            lost.append(names.missing_path(self._folder, *gone))
        try:
            for path in lost:
                if path.name not in present:
                    self._files.close(self._files.create(path))
            if lost:
                self._files.sync_directory(self._folder)
        except OSError as error:
            self._notes.append(f"could not note which offsets are lost: {error}")

    def _remove_temporaries(
        self, present: Sequence[str], scans: list[SegmentScan], *, beside_orphans: bool
    ) -> None:
        """Remove unfinished files, whose originals still exist. Those beside a single file of a pair are removed after
        that file is put aside: until then they show that it is not damage."""
        orphans = {scan.base_offset for scan in scans if scan.state is State.ORPHAN}
        if beside_orphans:
            orphans.difference_update(listed_bases(self._files.names(self._folder))[0])
        for name in present:
            if not name.endswith(names.TEMPORARY_SUFFIX):
                continue
            found = names.parse_aside(name)
            if (found is not None and found[1] in orphans) is beside_orphans:
                try:
                    self._files.unlink(self._folder / name)
                except OSError as error:
                    self._notes.append(f"could not remove {name}: {error}")

    def _remove_replaced(self, served: list[SegmentScan]) -> None:
        whole = [one.trailer for one in served if one.trailer and one.state is State.SEALED]
        try:
            remove_replaced(self._files, self._folder, whole)
        except OSError as error:
            self._notes.append(f"segment files that were replaced still take space: {error}")
