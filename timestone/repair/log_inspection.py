"""The inspection of one log's folder, for `inspect_store`. Reads only."""

import itertools
import time
from pathlib import Path

from timestone.disk.catalog import CatalogRow
from timestone.disk.files import Files
from timestone.errors import TimestoneError
from timestone.format import names
from timestone.format.folder_listing import base_offsets, known_missing
from timestone.format.identity import LogIdentity, identity_from_indexes
from timestone.format.topics import TopicDictionary
from timestone.kernel.entries import NO_TOPIC
from timestone.recovery.opening_progress import Progress
from timestone.recovery.segment_report import Finding, State
from timestone.recovery.segment_scan import examine
from timestone.repair.inspection_report import LogReport, SegmentReport

_ATTEMPTS = 3
_PAUSE_S = 0.002


class LogInspection:
    """One look at one log. Whatever is wrong with it is in the report."""

    def __init__(
        self,
        files: Files,
        store: Path,
        log: tuple[str, int],
        row: CatalogRow | None,
        deep: bool,
        progress: Progress | None,
    ) -> None:
        """row: what the catalogue says of where the log goes on; None when it does not know the log."""
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

    def report(self) -> LogReport:
        try:
            return self._report()
        except (TimestoneError, OSError) as error:
            return self._empty(error=str(error))

    def _empty(self, *, error: str = "", unborn: bool = False) -> LogReport:
        """The report of a log that cannot be looked into."""
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
            findings = self._examine(bases, log_id, topics)
            used_count = max((finding.topic_count for finding in findings), default=0)
            if topics is not None:
                topics.take_up_to(used_count)
            served = [finding for finding in findings if finding.state is not State.ORPHAN]
            return LogReport(
                log=self._name,
                partition=self._partition,
                id=log_id,
                epoch=max((one.header.epoch for one in findings if one.header), default=0),
                start_offset=served[0].base_offset if served else self._next_offset,
                end_offset=max((self._next_offset, *(finding.end_offset for finding in served))),
                synced_offset=max(
                    (one.base_offset + min(one.watermark, one.count) for one in served),
                    default=self._next_offset,
                ),
                records=sum(finding.count - finding.removed_count for finding in served),
                removed=sum(finding.removed_count for finding in served),
                bytes=sum(finding.segment_bytes for finding in served),
                stored_bytes=sum(map(_stored_bytes, served)),
                topics=used_count if topics is None else len(topics),
                topic_names_lost=used_count if topics is None else topics.lost_count,
                segments=tuple(map(_segment_report, findings)),
                strangers=tuple(strangers),
                put_aside=self._put_aside(),
                error="",
                topics_reason=reason,
                missing=tuple(self._missing(served)),
            )
        finally:
            if topics is not None:
                topics.close()

    def _topics(self, known: LogIdentity | None) -> tuple[int, TopicDictionary | None, str]:
        """The log's id, its topic dictionary if there is one, and what is wrong with that."""
        try:
            topics = TopicDictionary(self._files, self._folder / names.TOPICS_NAME, known=known)
        except FileNotFoundError:
            if known is None:
                raise
            return known.log_id, None, "the topic dictionary is missing"
        damaged = "the header page of the topic dictionary does not match its checksum"
        return topics.identity.log_id, topics, damaged if topics.damaged_header else ""

    def _examine(self, bases: list[int], log_id: int, topics: TopicDictionary | None) -> list[Finding]:
        findings = []
        for number, base in enumerate(bases):
            next_base = bases[number + 1] if number + 1 < len(bases) else None
            try:
                findings.append(self._examine_one(base, next_base, log_id, topics))
            except FileNotFoundError:
                if self._is_there(base):
                    raise
            if self._progress is not None:
                self._progress(self._folder.name, number + 1, len(bases))
        # Retention may have deleted some while others were looked at: always the oldest.
        present = set(base_offsets(self._files, self._folder)[0])
        return [finding for finding in findings if finding.base_offset in present]

    def _is_there(self, base: int) -> bool:
        return base in base_offsets(self._files, self._folder)[0]

    def _examine_one(
        self, base: int, next_base: int | None, log_id: int, topics: TopicDictionary | None
    ) -> Finding:
        """A segment, and again when it looks torn: on a live store the owner may be in the middle of an
        append or a seal."""
        attempt = 1
        while True:
            if topics is not None:
                topics.refresh()
            finding = examine(
                self._files,
                self._folder,
                base,
                log_id,
                topic_count=NO_TOPIC if topics is None else len(topics),
                most_count=next_base - base if next_base is not None else None,
                deep=self._deep,
            )
            if finding.state in (State.SEALED, State.UNCLOSED) or attempt == _ATTEMPTS:
                return finding
            attempt += 1
            time.sleep(_PAUSE_S)

    def _missing(self, served: list[Finding]) -> list[tuple[int, int]]:
        """What a gap within an epoch says, also the one behind the last segment, and what recovery has noted, unless
        that is back or would be deleted by now."""
        found = set()
        for one, later in itertools.pairwise(served):
            if one.header is None or later.header is None or one.header.epoch != later.header.epoch:
                continue
            if one.end_offset < later.base_offset:
                found.add((one.end_offset, later.base_offset))
        if served and (gone := served[-1].lost_behind(self._next_offset, self._epoch)) is not None:
            found.add(gone)
        start = served[0].base_offset if served else 0
        for first, end in known_missing(self._files.names(self._folder)):
            if end > start and not any(one.base_offset <= first < one.end_offset for one in served):
                found.add((first, end))
        return sorted(found)

    def _put_aside(self) -> tuple[str, ...]:
        return tuple(name for name in self._files.names(self._folder) if names.LOST_SUFFIX in name)


def _stored_bytes(finding: Finding) -> int:
    """What the records that are served take in the segment file."""
    return finding.segment_file_bytes if finding.frames else finding.segment_bytes


def _segment_report(finding: Finding) -> SegmentReport:
    trailer = finding.trailer
    return SegmentReport(
        base_offset=finding.base_offset,
        next_offset=finding.end_offset,
        records=finding.count - finding.removed_count,
        removed=finding.removed_count,
        bytes=finding.segment_bytes,
        stored_bytes=_stored_bytes(finding),
        index_bytes=finding.index_file_bytes,
        first_timestamp_us=trailer.first_timestamp_us if trailer else finding.first_timestamp_us,
        last_timestamp_us=finding.last_timestamp_us,
        state=str(finding.state),
        checkpoint=finding.watermark,
        topics=finding.named_topics if trailer else None,
        damaged_offsets=tuple(finding.base_offset + ordinal for ordinal in finding.damaged),
        lost_records=finding.lost_count,
        lost_bytes=finding.lost_bytes,
        reason=finding.reason,
        missing_bytes=finding.missing_bytes,
    )
