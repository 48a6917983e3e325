"""One log, salvaged: which proof counts where several speak of one offset, what is missing, and where the copy
continues.

What belongs here: the judgement. The proofs come from `remains.py` and `evidence.py`, the copy is written by
`log_copy.py`."""

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
from timestone.repair.segment_fragments import IndexPages, Remains, log_ids, remains_of
from timestone.writing.segment_writer import HalfWritten

Progress = Callable[[str, int, int], None]
"""Called with a log's folder name, the bytes read and about how many there are to read."""


@dataclass(frozen=True, slots=True)
class Salvaged:
    """One log, salvaged; `epoch` is None when there is no copy."""

    report: LogSalvage
    config: LogConfig
    epoch: int | None


class LogSalvager:
    """Salvages one log folder."""

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
        """row: what the catalogue says of the log, if it says anything."""
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
        self._remains: dict[int, Remains] = {}
        self._heard: dict[int, list[Proofs]] = {}

    def run(self) -> Salvaged:
        """Raises OSError when the copy cannot be written, CorruptLog when the source changes meanwhile."""
        try:
            return self._run()
        finally:
            for remains in self._remains.values():
                remains.close()

    def _run(self) -> Salvaged:
        config = self._row.config if self._row else LogConfig()
        try:
            identity, topic_names = self._identity()
            self._hear(identity.log_id)
        except (CorruptLog, OSError) as error:
            return Salvaged(self._empty_report(str(error)), config, None)
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
            next_offset=next_offset,
            records=copy.records,
            bytes=copy.bytes,
            topics=len(topic_names),
            topic_names_lost=topic_names.count(None),
            saved=tuple(proven),
            lost=lost,
            from_aside=sum(one.end - one.first for one in chosen if one.entry_source.aside),
            later_count=copy.later_count,
            notes=tuple(self._notes),
            error="",
        )
        return Salvaged(report, config, epoch + jumps)

    # Who the log is.

    def _identity(self) -> tuple[LogIdentity, list[str | None]]:
        """Raises CorruptLog when no file tells."""
        named = log_ids(self._files, self._folder, self._on_read)
        path = self._folder / names.TOPICS_NAME
        known = LogIdentity(named[0], self._name, self._partition, self._clock.now_us()) if named else None
        try:
            topics = TopicDictionary(self._files, path, known=known)
        except (OSError, TimestoneError) as error:
            if known is None:
                raise CorruptLog(self._folder, f"no file says who the log is ({error})") from error
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
            self._notes.append(f"the last {topics.torn_bytes} bytes of the topic dictionary prove no name")
        return topics.identity, topics.names()

    # What the files prove.

    def _hear(self, log_id: int) -> None:
        self._remains = remains_of(self._files, self._folder, log_id, self._on_read)
        files = [file for one in self._remains.values() for file in one.files]
        self._total_bytes = 2 * sum(file.size_bytes for file in files) + 1
        for base, remains in self._remains.items():
            entry_sources = remains.entry_sources()
            byte_sources = remains.byte_sources(entry_sources)
            self._heard[base] = [Proofs(source, byte_sources) for source in entry_sources]
            self._notes += remains.notes
            self._note_untold(base, remains)
            remains.close()

    def _note_untold(self, base: int, remains: Remains) -> None:
        """Say so when no index tells the records of a segment apart."""
        size = remains.segments[0].size_bytes if remains.has_segment else 0
        if remains.has_segment and not remains.has_index:
            self._notes.append(f"segment {base} has no index: nothing tells its {size} bytes apart")
        elif (
            size
            and _says_nothing(remains.own)
            and not any(one.end_offset > base for one in self._heard[base])
        ):
            self._notes.append(
                f"nothing is left of the index of segment {base}: nothing tells its {size} bytes apart"
            )

    def _chosen(self) -> tuple[list[ProvenRange], OffsetRanges]:
        """The proofs to copy, in offset order and each offset once."""
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
                    f"{file.path.name}: the disk would not read {len(file.unreadable)} pages of 4 KiB"
                )

    # Where the copy continues.

    def _next_offset(self, proven: OffsetRanges, missing: MissingOffsets, lossy: bool) -> tuple[int, bool]:
        """The next offset, and whether it is beyond the records because readers may have seen more of them."""
        end = self._row.next_offset if self._row else 0
        shown = 0
        for base, remains in self._remains.items():
            end = max(end, missing.expected_end(base))
            shown = max(shown, _shown(base, remains))
        end = max([end, *(last for _, last in proven)])
        last = max(self._remains, default=0)
        jumps = lossy or any(one.own is None or one.own.trailer is None for one in self._remains.values())
        if jumps and last in self._remains and not self._remains[last].has_index:
            shown = max(shown, last + SEGMENT_ENTRIES_MAX)
        return (max(end, shown), True) if jumps else (end, False)

    # The copy.

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
        """Returns the epoch of the last segment."""
        epoch = 0
        previous: ProvenRange | None = None
        for one in chosen:
            if previous is not None and previous.end != one.first and one.entry_source.epoch <= epoch:
                epoch += (
                    1  # a gap in the offsets without a new epoch would look like a loss to the next salvage
                )
            epoch = max(epoch, one.entry_source.epoch)
            if previous is None or previous.entry_source.base_offset != one.entry_source.base_offset:
                self._close(previous)
                copy.begin_segment()
            for first, entries, data, position in one.records():
                copy.add(first, entries, data, position, epoch=epoch)
            previous = one
        return epoch

    def _close(self, previous: ProvenRange | None) -> None:
        if previous is not None:
            self._remains[previous.entry_source.base_offset].close()

    def _on_read(self, count: int) -> None:
        self._read_bytes += count
        if self._progress is not None:
            self._progress(self._folder.name, min(self._read_bytes, self._total_bytes), self._total_bytes)

    def _empty_report(self, error: str) -> LogSalvage:
        return LogSalvage(
            log=self._name,
            partition=self._partition,
            id=0,
            start_offset=0,
            next_offset=0,
            records=0,
            bytes=0,
            topics=0,
            topic_names_lost=0,
            saved=(),
            lost=(),
            from_aside=0,
            later_count=0,
            notes=tuple(self._notes),
            error=error,
        )


def _says_nothing(index: IndexPages | None) -> bool:
    return index is None or (index.header is None and index.checkpoint is None and index.trailer is None)


def _shown(base: int, remains: Remains) -> int:
    """No reader was shown an offset of this segment at or above the result, as far as its files tell."""
    shown = 0
    for pages in remains.indexes:
        if pages.trailer is not None and not pages.trailer.recovered:
            continue
        room = max(0, pages.file.size_bytes - HEADER_BYTES) // ENTRY_BYTES
        shown = max(shown, pages.checkpoint.ceiling if pages.checkpoint else base + room)
    return shown
