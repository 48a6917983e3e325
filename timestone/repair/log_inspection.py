"""Inspection of the folder of one log, for `inspect_store`. Reads only."""

import itertools
import time
from pathlib import Path

from timestone.disk.catalog import CatalogRow
from timestone.disk.files import Files
from timestone.errors import TimestoneError
from timestone.format import names
from timestone.format.deleted_files import deleted_up_to
from timestone.format.folder_listing import base_offsets, halves_aside, known_missing
from timestone.format.identity import LogIdentity, identity_from_indexes
from timestone.format.topics import TopicDictionary
from timestone.kernel.entries import NO_TOPIC
from timestone.reading.segment_list import start_in_front
from timestone.recovery.opening_progress import Progress
from timestone.recovery.segment_report import SegmentScan, State
from timestone.recovery.segment_scan import examine
from timestone.repair.inspection_report import LogReport, SegmentReport

_ATTEMPTS = 3
_PAUSE_S = 0.002


class LogInspection:
    """Inspection of one log. Everything wrong with it is in the report."""

    def __init__(
        self,
        files: Files,
        store: Path,
        log: tuple[str, int],
        row: CatalogRow | None,
        deep: bool,
        progress: Progress | None,
        *,
        topics: bool = True,
    ) -> None:
        """row: where the log continues by the catalogue; None if the catalogue does not have the log. topics: read and
        check the names of its topics, too, which takes 3 s for a million."""
        name, partition = log
        self._known = row is not None
        self._next_offset = row.next_offset if row else 0
        self._epoch = row.epoch if row else 0
        self._files = files
        self._folder = store / names.log_folder(name, partition)
        self._name = name
        self._partition = partition
        self._deep = deep
        self._progress = progress
        self._with_topics = topics

    def report(self) -> LogReport:
        try:
            return self._report()
        except (TimestoneError, OSError) as error:
            return self._empty(error=str(error))

    def _empty(self, *, error: str = "", unborn: bool = False) -> LogReport:
        """Return the report of a log that cannot be read."""
        return LogReport(
            self._name,
            self._partition,
            *(0,) * 10,
            segments=(),
            strangers=(),
            put_aside=self._put_aside(),
            error=error,
            unborn=unborn,
        )

    def _report(self) -> LogReport:
        bases, strangers = base_offsets(self._files, self._folder)
        if not bases and not self._known and names.TOPICS_NAME not in self._files.names(self._folder):
            return self._empty(unborn=True)
        known = identity_from_indexes(self._files, self._folder, bases, self._name, self._partition)
        log_id, topics, reason = self._topics(known)
        try:
            scans = self._examine(bases, log_id, topics)
            used_count = max((scan.topic_count for scan in scans), default=0)
            names_lost = used_count if self._with_topics else 0
            if topics is not None:
                topics.take_up_to(used_count)
                names_lost = topics.lost_count
            served = [scan for scan in scans if scan.state is not State.ORPHAN]
            end_offset = max((self._next_offset, *(scan.end_offset for scan in served)))
            start_offset, missing = self._missing(scans, served, end_offset)
            return LogReport(
                log=self._name,
                partition=self._partition,
                id=log_id,
                epoch=max((one.header.epoch for one in scans if one.header), default=0),
                start_offset=start_offset,
                end_offset=end_offset,
                synced_offset=max(
                    (one.base_offset + min(one.watermark, one.count) for one in served),
                    default=self._next_offset,
                ),
                records=sum(scan.count - scan.removed_count for scan in served),
                removed=sum(scan.removed_count for scan in served),
                bytes=sum(scan.segment_bytes for scan in served),
                stored_bytes=sum(map(_stored_bytes, served)),
                topics=used_count if topics is None else len(topics),
                topic_names_lost=names_lost,
                segments=tuple(map(_segment_report, scans)),
                strangers=tuple(strangers),
                put_aside=self._put_aside(),
                error="",
                topics_reason=reason,
                missing=tuple(missing),
            )
        finally:
            if topics is not None:
                topics.close()

    def _topics(self, known: LogIdentity | None) -> tuple[int, TopicDictionary | None, str]:
        """Return the id of the log, its topic dictionary if there is one, and what is wrong with that."""
        if known is not None and not self._with_topics:
            return known.log_id, None, ""
        try:
            topics = TopicDictionary(self._files, self._folder / names.TOPICS_NAME, known=known)
        except FileNotFoundError:
            if known is None:
                raise
            return known.log_id, None, "the topic dictionary is missing"
        damaged = "the header page of the topic dictionary is damaged, or that of another log"
        return topics.identity.log_id, topics, damaged if topics.damaged_header else ""

    def _examine(self, bases: list[int], log_id: int, topics: TopicDictionary | None) -> list[SegmentScan]:
        scans = []
        for number, base in enumerate(bases):
            next_base = bases[number + 1] if number + 1 < len(bases) else None
            try:
                scans.append(self._examine_one(base, next_base, log_id, topics))
            except FileNotFoundError:
                if base in base_offsets(self._files, self._folder)[0]:
                    raise
            if self._progress is not None:
                self._progress(self._folder.name, number + 1, len(bases))
        # Retention may have deleted segments in between, always the oldest.
        present = set(base_offsets(self._files, self._folder)[0])
        return [scan for scan in scans if scan.base_offset in present]

    def _examine_one(
        self, base: int, next_base: int | None, log_id: int, topics: TopicDictionary | None
    ) -> SegmentScan:
        """Scan a segment, twice if it looks torn: the owner of a live store may be appending or sealing."""
        attempt = 1
        while True:
            if topics is not None:
                topics.refresh()
            scan = examine(
                self._files,
                self._folder,
                base,
                log_id,
                topic_count=NO_TOPIC if topics is None else len(topics),
                most_count=next_base - base if next_base is not None else None,
                deep=self._deep,
            )
            if scan.state in (State.SEALED, State.CLOSED, State.UNCLOSED) or attempt == _ATTEMPTS:
                return scan
            attempt += 1
            time.sleep(_PAUSE_S)

    def _missing(
        self, scans: list[SegmentScan], served: list[SegmentScan], end_offset: int
    ) -> tuple[int, list[tuple[int, int]]]:
        """Return where the log begins, and the lost offsets: gaps within an epoch, also after the last segment,
        segments that are lost as a whole, and those recorded by recovery, unless they are back or would have been
        deleted by now."""
        found = set()
        for one, later in itertools.pairwise(served):
            if one.header is None or later.header is None or one.header.epoch != later.header.epoch:
                continue
            if one.end_offset < later.base_offset:
                found.add((one.end_offset, later.base_offset))
        if served and (gone := served[-1].lost_behind(self._next_offset, self._epoch)) is not None:
            found.add(gone)
        present = self._files.names(self._folder)
        aside, deleted = halves_aside(present), deleted_up_to(present)
        told = {one for one in known_missing(present) if one[0] > deleted}
        for scan in scans:
            if scan.state is State.ORPHAN and scan.base_offset not in aside:
                later_bases = (one.base_offset for one in served if one.base_offset > scan.base_offset)
                if (lost := scan.lost_range(next(later_bases, end_offset))) is not None:
                    told.add(lost)
        found |= {
            (first, end)
            for first, end in told
            if not any(one.base_offset <= first < one.end_offset for one in served)
        }
        start = start_in_front(served[0].base_offset if served else end_offset, found)
        return start, sorted(one for one in found if one[1] > start)

    def _put_aside(self) -> tuple[str, ...]:
        return tuple(name for name in self._files.names(self._folder) if names.LOST_SUFFIX in name)


def _stored_bytes(scan: SegmentScan) -> int:
    """Return the size of the served records in the segment file."""
    return scan.segment_file_bytes if scan.frames else scan.segment_bytes


def _segment_report(scan: SegmentScan) -> SegmentReport:
    trailer = scan.trailer
    return SegmentReport(
        base_offset=scan.base_offset,
        next_offset=scan.end_offset,
        records=scan.count - scan.removed_count,
        removed=scan.removed_count,
        bytes=scan.segment_bytes,
        stored_bytes=_stored_bytes(scan),
        index_bytes=scan.index_file_bytes,
        first_timestamp_us=trailer.first_timestamp_us if trailer else scan.first_timestamp_us,
        last_timestamp_us=scan.last_timestamp_us,
        state=str(scan.state),
        checkpoint=scan.watermark,
        topics=scan.named_topics if trailer else None,
        damaged_offsets=tuple(scan.base_offset + ordinal for ordinal in scan.damaged),
        lost_records=scan.lost_count,
        lost_bytes=scan.lost_bytes,
        reason=scan.reason,
        missing_bytes=scan.missing_bytes,
    )
