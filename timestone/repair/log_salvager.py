"""Salvage of one log: chooses among proofs of the same offset, determines what is missing, and where the copy
continues. The proofs come from `segment_fragments.py` and `record_verifier.py`; `log_copy.py` writes the copy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from timestone.config import SEGMENT_ENTRIES_MAX, LogConfig
from timestone.disk.catalog import CatalogRow
from timestone.disk.clock import Clock
from timestone.disk.files import Files
from timestone.errors import CorruptLog, TimestoneError
from timestone.format import names
from timestone.format.identity import LogIdentity
from timestone.format.topics import TopicDictionary
from timestone.kernel.entries import ENTRY_BYTES, HEADER_BYTES
from timestone.recovery.record_verifier import Proofs, ProvenRange
from timestone.repair.log_copy import LogCopy
from timestone.repair.missing_offsets import MissingOffsets
from timestone.repair.offset_ranges import OffsetRanges
from timestone.repair.salvage_report import LogSalvage
from timestone.repair.segment_fragments import IndexPages, SegmentFragments, fragments_of, log_ids
from timestone.writing.segment_writer import HalfWritten

Progress = Callable[[str, int, int], None]
"""Called with the folder name of a log, the bytes read, and the approximate total."""


@dataclass(frozen=True, slots=True)
class Salvaged:
    """Result of salvaging one log; `epoch` is None if there is no copy."""

    report: LogSalvage
    config: LogConfig
    epoch: int | None


class LogSalvager:
    """Salvage of one log folder."""

    def __init__(
        self,
        files: Files,
        clock: Clock,
        source: Path,
        target: Path,
        log: tuple[str, int],
        row: CatalogRow | None,
        progress: Progress | None,
    ) -> None:
        """row: row of the log in the catalogue, if it has one."""
        self._files = files
        self._clock = clock
        self._name, self._partition = log
        self._folder = source / names.log_folder(*log)
        self._target = target / names.log_folder(*log)
        self._row = row
        self._progress = progress
        self._read_bytes = 0
        self._total_bytes = 1
        self._notes: list[str] = []
        self._remains: dict[int, SegmentFragments] = {}
        self._heard: dict[int, list[Proofs]] = {}

    def run(self) -> Salvaged:
        """Run the salvage. Raises OSError if the copy cannot be written, CorruptLog if the source changes in
        between."""
        try:
            return self._run()
        finally:
            for fragments in self._remains.values():
                fragments.close()

    def _run(self) -> Salvaged:
        config = self._row.config if self._row else LogConfig()
        try:
            identity, topic_names = self._identity()
            self._hear(identity.log_id)
        except (CorruptLog, OSError) as error:
            notes = tuple(self._notes)
            return Salvaged(
                LogSalvage(self._name, self._partition, notes=notes, error=str(error)), config, None
            )
        chosen, proven = self._chosen()
        missing = MissingOffsets(self._remains, self._heard)
        lost = tuple(missing.losses(proven))
        next_offset, jumps = self._next_offset(proven, missing, bool(lost))
        count = max((one.topic_count for heard in self._heard.values() for one in heard), default=0)
        topic_names += [None] * (count - len(topic_names))
        copy, epoch = self._copy(identity, topic_names, chosen)
        self._note_unreadable()
        report = LogSalvage(
            log=self._name,
            partition=self._partition,
            id=identity.log_id,
            start_offset=min((first for first, _ in proven), default=next_offset),
            end_offset=next_offset,
            records=copy.records,
            bytes=copy.bytes,
            topics=len(topic_names),
            topic_names_lost=topic_names.count(None),
            saved=tuple(proven),
            lost=lost,
            from_aside=sum(one.end - one.first for one in chosen if one.entry_source.aside),
            later_count=copy.later_count,
            notes=tuple(self._notes),
        )
        return Salvaged(report, config, epoch + jumps)

    # Identity of the log.

    def _identity(self) -> tuple[LogIdentity, list[str | None]]:
        """Return the identity and the topic names. Raises CorruptLog if no file has the identity."""
        named = log_ids(self._files, self._folder, self._on_read)
        path = self._folder / names.TOPICS_NAME
        known = LogIdentity(named[0], self._name, self._partition, self._clock.now_us()) if named else None
        try:
            topics = TopicDictionary(self._files, path, known=known)
        except (OSError, TimestoneError) as error:
            if known is None:
                raise CorruptLog(self._folder, f"no file has the identity of the log ({error})") from error
            self._notes.append(f"the topic dictionary cannot be read, so no record has a topic: {error}")
            return known, []
        topics.close()
        if known is not None and topics.identity.log_id not in named:
            self._notes.append("the topic dictionary is another log's, so no record has a topic")
            return known, []
        if topics.damaged_header:
            self._notes.append(
                "the header of the topic dictionary is damaged; the indexes say who the log is"
            )
        if topics.torn_bytes:
            self._notes.append(
                f"the last {topics.torn_bytes} bytes of the topic dictionary are not a valid name"
            )
        return topics.identity, topics.names()

    # Proofs.

    def _hear(self, log_id: int) -> None:
        self._remains = fragments_of(self._files, self._folder, log_id, self._on_read)
        files = [file for one in self._remains.values() for file in one.files]
        self._total_bytes = 2 * sum(file.size_bytes for file in files) + 1
        for base, fragments in self._remains.items():
            entry_sources = fragments.entry_sources()
            byte_sources = fragments.byte_sources(entry_sources)
            self._heard[base] = [Proofs(source, byte_sources) for source in entry_sources]
            self._notes += fragments.notes
            self._note_untold(base, fragments)
            fragments.close()

    def _note_untold(self, base: int, fragments: SegmentFragments) -> None:
        """Note a segment without index entries, whose records cannot be separated."""
        size = fragments.segments[0].size_bytes if fragments.has_segment else 0
        if fragments.has_segment and not fragments.has_index:
            self._notes.append(
                f"segment {base} has no index: its {size} bytes cannot be separated into records"
            )
        elif (
            size
            and _says_nothing(fragments.own)
            and not any(one.end_offset > base for one in self._heard[base])
        ):
            self._notes.append(
                f"segment {base} has no valid index entries: its {size} bytes cannot be separated into records"
            )

    def _chosen(self) -> tuple[list[ProvenRange], OffsetRanges]:
        """Return the proven ranges to copy, in order of offset and each offset once."""
        ranges = [one for heard in self._heard.values() for proofs in heard for one in proofs.proven]
        ranges.sort(key=lambda one: (one.entry_source.aside, -one.entry_source.epoch, one.first))
        proven, chosen = OffsetRanges(), []
        for one in ranges:
            parts = list(proven.missing(one.first, one.end))
            chosen += [replace(one, first=first, end=end) for first, end in parts]
            proven.add(one.first, one.end)
        return sorted(chosen, key=lambda one: one.first), proven

    def _note_unreadable(self) -> None:
        for file in (file for one in self._remains.values() for file in one.files):
            if file.unreadable:
                self._notes.append(
                    f"{file.path.name}: {len(file.unreadable)} pages of 4 KiB could not be read"
                )

    # Next offset of the copy.

    def _next_offset(self, proven: OffsetRanges, missing: MissingOffsets, lossy: bool) -> tuple[int, bool]:
        """Return the next offset, and whether it lies beyond the records because readers may have seen more."""
        end = self._row.next_offset if self._row else 0
        shown = 0
        for base, fragments in self._remains.items():
            end = max(end, missing.expected_end(base))
            shown = max(shown, _shown(base, fragments))
        end = max([end, *(last for _, last in proven)])
        last = max(self._remains, default=0)
        jumps = lossy or not all(map(_is_closed, self._remains.values()))
        if jumps and last in self._remains and not self._remains[last].has_index:
            shown = max(shown, last + SEGMENT_ENTRIES_MAX)
        return (max(end, shown), True) if jumps else (end, False)

    # Copy.

    def _copy(
        self, identity: LogIdentity, topic_names: list[str | None], chosen: Sequence[ProvenRange]
    ) -> tuple[LogCopy, int]:
        copy = LogCopy(
            self._files, self._target, identity, now_us=self._clock.now_us(), boot_id=self._clock.boot_id()
        )
        try:
            copy.write_topics(topic_names)
            epoch = self._copy_records(copy, chosen)
            copy.finish()
        except HalfWritten as error:
            raise OSError(f"{self._target}: {error}") from error
        finally:
            copy.close()
        return copy, max(epoch, self._row.epoch if self._row else 0)

    def _copy_records(self, copy: LogCopy, chosen: Sequence[ProvenRange]) -> int:
        """Copy the records. Return the epoch of the last segment."""
        epoch = 0
        previous: ProvenRange | None = None
        for one in chosen:
            if previous is not None and previous.end != one.first and one.entry_source.epoch <= epoch:
                epoch += (
                    1  # a gap in the offsets without a new epoch would look like a loss to the next salvage
                )
            epoch = max(epoch, one.entry_source.epoch)
            if previous is None or previous.entry_source.base_offset != one.entry_source.base_offset:
                if previous is not None:
                    self._remains[previous.entry_source.base_offset].close()
                copy.begin_segment()
            for first, entries, data, position in one.records():
                copy.add(first, entries, data, position, epoch=epoch)
            previous = one
        return epoch

    def _on_read(self, count: int) -> None:
        self._read_bytes += count
        if self._progress is not None:
            self._progress(self._folder.name, min(self._read_bytes, self._total_bytes), self._total_bytes)


def _says_nothing(index: IndexPages | None) -> bool:
    return index is None or (index.header is None and index.checkpoint is None and index.trailer is None)


def _is_closed(fragments: SegmentFragments) -> bool:
    """Return whether the owner sealed or closed the segment."""
    own = fragments.own
    if own is None or own.trailer is not None:
        return own is not None
    return own.checkpoint is not None and own.checkpoint.closes(fragments.base_offset)


def _shown(base: int, fragments: SegmentFragments) -> int:
    """Return the bound of the offsets of this segment that readers may have seen, by its files."""
    shown = 0
    for pages in fragments.indexes:
        if pages.trailer is not None and not pages.trailer.recovered:
            continue
        room = max(0, pages.file.size_bytes - HEADER_BYTES) // ENTRY_BYTES
        shown = max(shown, pages.checkpoint.ceiling if pages.checkpoint else base + room)
    return shown
