"""Opening a log that was not closed: put aside what does not hold, seal the rest, say what was found. What the files
prove is `log_examination.py`.

Nothing is deleted: what is cut off is copied to `.lost` files first, and files that cannot be served are
renamed to `.lost`. On a full or read-only disk nothing is written and the proven prefix is served as it is;
sealing is tried again by the next open.

    sealed                      trusted
    unclosed                    sealed at its last proven record
    torn                        the rest is copied to `.lost`, then sealed there
    damaged                     sealed as it is: reading a damaged record raises CorruptRecord, its neighbours are whole
    orphan                      renamed to `.lost`

If anything proves or allows that offsets which readers have seen are gone (the machine was rebooted, durable
records are missing), the next record goes to the reserve ceiling and the epoch rises: an offset is never
given to a second record."""

import errno
import functools
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from timestone.config import Recovery
from timestone.disk.files import Files
from timestone.errors import CorruptLog, LogFailed
from timestone.format import names
from timestone.format.failed_fsync_marker import clear_doubt, copy_anew, is_doubted, mark_doubt
from timestone.format.folder_listing import known_missing, listed_bases
from timestone.format.quarantine import LostFiles
from timestone.format.topics import TopicDictionary
from timestone.kernel.entries import entry_position
from timestone.recovery.deferred_seals import Leftovers, may_wait
from timestone.recovery.log_scan import LogExamination, continuation, topics_in_use
from timestone.recovery.segment_report import Finding, State, describe, described
from timestone.writing.sealing import seal_index
from timestone.writing.segment_swap import remove_replaced

_LOGGER = logging.getLogger("timestone")


@dataclass(frozen=True, slots=True)
class Recovered:
    """What opening one log found, and where the log continues."""

    log: str
    partition: int
    findings: tuple[Finding, ...]
    """The segments to serve, in order; their `trailer` is set when they are sealed now."""
    next_offset: int
    epoch: int
    last_timestamp_us: int
    notes: tuple[str, ...]
    """One sentence for each thing that was not as a clean stop leaves it."""
    leftovers: Leftovers | None = None
    """Those of the segments that are not durable yet; None when all are."""

    def __str__(self) -> str:
        return f"{self.log}-{self.partition}: {'; '.join(self.notes)}"


class LogRecovery:
    """Recovers one log folder. The store's lock is held."""

    def __init__(
        self,
        files: Files,
        folder: Path,
        topics: TopicDictionary,
        mode: Recovery,
        boot_id: bytes,
        now_us: Callable[[], int],
    ) -> None:
        self._files = files
        self._folder = folder
        self._topics = topics
        self._strict = mode is Recovery.STRICT
        self._boot_id = boot_id
        self._now_us = now_us
        self._notes: list[str | Finding] = []
        self._lost_files = LostFiles(files, folder)
        self._doubted = is_doubted(files, folder)
        self._remember: Callable[[], bool] = lambda: True
        self._waiting: list[Finding] = []
        """Served, and not known to be durable; or to be put aside."""
        self._refusal: OSError | None = None
        """Why some of what is in doubt could not be copied, or some of what has to go could not be put aside."""

    def run(
        self,
        *,
        least_next_offset: int = 0,
        least_epoch: int = 0,
        remember: Callable[[int, int], bool] = lambda next_offset, epoch: True,
        progress: Callable[[int, int], None] = lambda done, count: None,
        at_once: bool = True,
    ) -> Recovered:
        """Examine, repair and report.

        remember: makes a next offset and epoch durable outside the folder; false when it cannot. Called
        before anything is changed: the segments that tell where to continue may be gone when the repair itself
        is cut short.
        progress: called with the segments that have been examined and how many there are, before the first and
        after each; and again after each that was repaired.
        at_once: false to leave segments that only have to be flushed and sealed for later, as `leftovers`.

        Raises CorruptLog in strict mode when anything is not as a clean stop leaves it (nothing was changed
        then), UnsupportedFormat, OSError when files cannot even be read, LogFailed when what was found cannot
        be flushed."""
        present = self._files.names(self._folder)
        bases, strangers = listed_bases(present)
        if strangers:
            self._notes.append(f"ignored foreign files: {', '.join(strangers)}")
        topics = self._topics
        examination = LogExamination(self._files, self._folder, topics.identity.log_id, len(topics))
        findings = examination.run(bases, progress)
        unclean = [finding for finding in findings if finding.state is not State.SEALED]
        if self._strict:
            self._check_clean(findings, unclean)
        gone = findings[-1].lost_behind(least_next_offset, least_epoch) if findings else None
        if gone is not None and gone not in known_missing(present):
            why = f"no segment holds offsets {gone[0]} to {gone[1] - 1}, which were given out"
            if self._strict:
                raise CorruptLog(self._folder, f"{why}, and recovery is 'strict'")
            self._notes.append(why)
        next_offset, epoch, jumps = continuation(findings, least_next_offset, least_epoch, self._boot_id)
        if jumps:
            self._notes.append(
                f"the next offset is {next_offset} in epoch {epoch}, so that none is given out twice"
            )
        if epoch > least_epoch:
            self._remember = functools.partial(remember, next_offset, epoch)
        if not self._strict:
            self._remove_temporaries(present, findings, beside_orphans=False)
            self._note_missing(findings, gone, next_offset, present)
        if not at_once and self._may_wait(unclean):
            self._take_topics(findings)
            self._notes += unclean
            served, self._waiting = findings, unclean
        else:
            served = self._make_durable(findings, lambda: progress(len(findings), len(findings)))
        if not self._strict:
            self._remove_temporaries(present, findings, beside_orphans=True)
            self._remove_replaced(served)
        last_us = max((finding.last_timestamp_us for finding in served), default=0)
        identity = topics.identity
        return Recovered(
            identity.name,
            identity.partition,
            tuple(served),
            next_offset,
            epoch,
            last_us,
            described(self._notes),
            Leftovers(sorted(self._waiting, key=_base_offset), self._settle) if self._waiting else None,
        )

    def _check_clean(self, findings: list[Finding], unclean: list[Finding]) -> None:
        """Raise CorruptLog for what a clean stop would not have left."""
        if unclean:
            first = unclean[0]
            path = names.index_path(self._folder, first.base_offset)
            raise CorruptLog(path, f"the log was not closed ({describe(first)}) and recovery is 'strict'")
        if self._doubted:
            path = self._folder / names.DOUBT_NAME
            raise CorruptLog(
                path, "what a failed flush put in doubt is not in new files, and recovery is 'strict'"
            )
        if wrong := self._wrong_with_topics(findings):
            raise CorruptLog(self._topics.path, f"{wrong}, and recovery is 'strict'")

    def _wrong_with_topics(self, findings: list[Finding]) -> str:
        """What a clean stop would not leave of the topic dictionary; empty if nothing."""
        topics = self._topics
        if topics.damaged_header:
            return "the header page is damaged"
        if topics.torn_bytes:
            return f"it ends with {topics.torn_bytes} bytes that are no name"
        lost = topics_in_use(findings) - len(topics)
        return f"the last {lost} names are lost" if lost > 0 else ""

    def _may_wait(self, unclean: list[Finding]) -> bool:
        """Is there nothing to do but to flush and to seal?"""
        topics = self._topics
        mended = topics.torn_bytes or topics.damaged_header or self._doubted
        return bool(unclean) and not mended and all(map(may_wait, unclean))

    def _settle(self) -> None:
        """Make durable what waits. Raises OSError: it still waits; LogFailed."""
        waiting, self._waiting, self._refusal = self._waiting, [], None
        try:
            self._make_durable(waiting)
            if self._refusal is not None:
                raise self._refusal
        except BaseException:
            self._waiting = waiting
            raise

    def _make_durable(
        self, findings: list[Finding], progress: Callable[[], None] = lambda: None
    ) -> list[Finding]:
        """Repair, flush and seal every segment, or put it aside; returns those to serve. Raises LogFailed, OSError."""
        if not self._remember():
            self._notes.append("the catalogue cannot be written, so nothing was repaired")
            error = OSError(errno.EROFS, "the catalogue cannot be written", str(self._folder))
            self._refuse(error)
            self._await_removal(findings, error)
            self._take_topics(findings)
            served = [finding for finding in findings if finding.serves]
            for finding in served:
                if finding.state is not State.SEALED:
                    self._flush_unsealed(finding)
            return served
        if not self._strict:
            self._repair_topics(findings)
        # First what goes, newest first: cut short, the repair leaves no record behind a hole either.
        going = [finding for finding in reversed(findings) if not finding.serves]
        served = []
        staying = [finding for finding in findings if finding.serves]
        for finding in [*going, *staying]:
            unclean = finding.state is not State.SEALED
            if self._repair(finding) is not None:
                served.append(finding)
            if unclean:
                progress()
        if self._doubted and not self._waiting and self._refusal is None:
            self._trust_again()
        return served

    def _trust_again(self) -> None:
        try:
            clear_doubt(self._files, self._folder)
        except OSError as error:
            self._notes.append(f"could not remove {names.DOUBT_NAME}: {error}")

    def _repair(self, finding: Finding) -> Finding | None:
        """Make one segment serveable; None when it holds nothing to serve."""
        if finding.state is State.SEALED:
            return finding
        self._notes.append(finding)
        try:
            if not finding.serves:
                self._put_aside(finding)
                return None
            if self._refusal is not None:
                raise self._refusal
            if finding.lost_bytes or finding.lost_count:
                self._copy_tail_aside(finding)
            self._seal(finding)
        except OSError as error:
            # A full or read-only disk: serve the proven prefix from the files as they are.
            done = "seal" if finding.serves else "put aside"
            rest = "; it is served unsealed" if finding.serves else ""
            self._notes.append(f"could not {done} {finding.base_offset:020d} ({error}){rest}")
            _LOGGER.warning("%s: %s", self._folder, self._notes[-1])
            if not finding.serves:
                self._await_removal([finding], error)
                return None
            self._refuse(error)
            self._flush_unsealed(finding)
        return finding

    def _refuse(self, error: OSError) -> None:
        """What is in doubt stays in doubt."""
        if self._doubted:
            self._refusal = error

    def _await_removal(self, findings: Sequence[Finding], error: OSError) -> None:
        """Seal nothing, and let nothing come to lie behind the log, before what was never durable is put aside: to the
        next open, its neighbours would prove that it was."""
        staying = [finding for finding in findings if finding.has_to_go]
        if staying:
            self._waiting += staying
            self._refusal = error

    def _flush_unsealed(self, finding: Finding) -> None:
        """What is served counts as durable, so make it: the dead owner may not have come to it. What is in doubt waits
        until it can be copied, because flushing the same files again would prove nothing. Raises LogFailed."""
        if self._refusal is not None:
            self._waiting.append(finding)
            return
        for path in (
            names.segment_path(self._folder, finding.base_offset, finding.generation),
            names.index_path(self._folder, finding.base_offset),
        ):
            fd = self._files.open(path)
            try:
                self._flush(functools.partial(self._files.fdatasync, fd))
            finally:
                self._files.close(fd)

    def _seal(self, finding: Finding) -> None:
        assert finding.header is not None
        path = names.segment_path(self._folder, finding.base_offset, finding.generation)
        stored_bytes = finding.segment_file_bytes if finding.frames else finding.segment_bytes
        self._flush_segment(path, stored_bytes)
        finding.trailer = seal_index(
            self._files,
            finding.header,
            self._folder,
            count=finding.count,
            segment_bytes=finding.segment_bytes,
            last=finding.checkpoint,
            now_us=self._now_us(),
            generation=finding.generation,
            stored_bytes=stored_bytes,
            frames=finding.frames,
            recovered=True,
        )

    def _flush_segment(self, path: Path, size_bytes: int) -> None:
        """Make the proven bytes durable, and drop what lies behind them. (The index is written again.)

        Raises LogFailed when the flush fails: what another open then calls durable may not be.
        """
        if self._doubted:
            copy_anew(self._files, path, size_bytes)
            return
        fd = self._files.open(path, write=True)
        try:
            if self._files.size(fd) >= size_bytes:  # of the same size it may have blocks allocated ahead
                self._files.truncate(fd, size_bytes)
            self._flush(lambda: self._files.fdatasync(fd))
        finally:
            self._files.close(fd)

    def _flush(self, flush: Callable[[], None]) -> None:
        try:
            flush()
        except OSError as error:
            with suppress(OSError):  # the disk may take no mark either: all the less may this be tried again
                mark_doubt(self._files, self._folder)
            raise LogFailed(self._folder, error) from error

    def _put_aside(self, finding: Finding) -> None:
        """Rename the files of a segment that serves nothing; one that never held anything is removed."""
        present = self._files.names(self._folder)
        mine = [name for name in present if names.parse_pair_base(name) == finding.base_offset]
        index_first = sorted(mine, key=lambda name: names.parse_index(name) is None)
        nothing_lost = not (finding.lost_bytes or finding.lost_count or finding.reason)
        no_bytes = finding.state is State.ORPHAN and finding.segment_file_bytes == 0
        empty = not finding.loss_proven and (nothing_lost or no_bytes)
        for path in (self._folder / name for name in index_first):
            if empty:
                self._files.unlink(path)
            else:
                self._lost_files.keep(path)
        self._lost_files.sync()

    def _copy_tail_aside(self, finding: Finding) -> None:
        """Copy what is cut off to `.lost`, durably, before anything is cut."""
        if finding.lost_bytes:
            path = names.segment_path(self._folder, finding.base_offset, finding.generation)
            self._lost_files.copy(path, 0 if finding.frames else finding.segment_bytes)
        if finding.lost_count:
            path = names.index_path(self._folder, finding.base_offset)
            self._lost_files.copy(path, entry_position(finding.count))
        self._lost_files.sync()

    def _repair_topics(self, findings: list[Finding]) -> None:
        topics = self._topics
        self._take_topics(findings)
        try:
            if topics.torn_bytes:
                # Names are written whole before records use them, so these are of no record.
                self._notes.append(f"cut {topics.torn_bytes} torn bytes off the topic dictionary")
                self._lost_files.copy(topics.path, topics.end_position)
                self._lost_files.sync()
                topics.cut()
            if topics.damaged_header:
                self._notes.append("rewrote the damaged header of the topic dictionary")
                topics.rewrite_header()
            topics.write_added()  # ids whose names are lost: the file says so from now on
            if self._doubted:
                topics.copy_anew()
                self._files.sync_directory(self._folder)
        except OSError as error:
            self._refuse(error)
            self._notes.append(f"could not repair the topic dictionary: {error}")
        if any(finding.trailer is None for finding in findings):
            self._flush(topics.sync)  # the records that are about to be sealed need their names

    def _take_topics(self, findings: list[Finding]) -> None:
        """No id that a record has is given to another name."""
        self._topics.take_up_to(topics_in_use(findings))
        if self._topics.lost_count:
            self._notes.append(
                f"{self._topics.lost_count} topic names are lost; their records are served without a topic"
            )

    def _note_missing(
        self, findings: list[Finding], gone: tuple[int, int] | None, next_offset: int, present: Sequence[str]
    ) -> None:
        """Have the folder say which offsets damage has taken, before the files that tell of them are put aside: readers
        are told, and tell this from what a power loss has left out. `gone`: those of segments behind the last."""
        # Half a pair whose other half was put aside, or never got its name: what that means was known then, and noted
        # if it was damage.
        halves = {half[1] for name in present if (half := names.parse_aside(name)) is not None}
        following = [*(finding.base_offset for finding in findings[1:]), next_offset]
        lost = [
            names.missing_path(self._folder, *found)
            for finding, end in zip(findings, following, strict=False)
            if (found := finding.lost_range(end)) is not None
            and not (finding.state is State.ORPHAN and finding.base_offset in halves)
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
        self, present: Sequence[str], findings: list[Finding], *, beside_orphans: bool
    ) -> None:
        """Unfinished files are copies: what they were made from is still there. Those beside half a pair go when that
        has been put aside: until then they say that it is no damage."""
        orphans = {finding.base_offset for finding in findings if finding.state is State.ORPHAN}
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

    def _remove_replaced(self, served: list[Finding]) -> None:
        whole = [one.trailer for one in served if one.trailer and one.state is State.SEALED]
        try:
            remove_replaced(self._files, self._folder, whole)
        except OSError as error:
            self._notes.append(f"segment files that were replaced still take space: {error}")


def _base_offset(finding: Finding) -> int:
    return finding.base_offset
