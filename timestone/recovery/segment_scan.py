"""What the files of one segment prove about themselves. Reads only; changes nothing.

Used by recovery (which acts on it), by `inspect` (which explains it) and by salvage. The rule, from
docs/durability.md:

- A trailer that holds, in an index of the size it says: sealed. Trusted; records are checked when they are
  read.
- Else unclosed. W is the newest checkpoint: records below it were durable. From W on every entry and the
  bytes it points to are checked, and the first that does not hold is the torn tail: everything from there on
  never counted as synced.
- A record below W that does not hold is damage: it alone is lost, its neighbours stay readable."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from timestone.compressed.frame_cache import DecodedFrames
from timestone.compressed.frame_table import TAG_BYTES, is_framed
from timestone.compressed.framed_bytes import FramedBytes, FramedFile, open_framed
from timestone.disk.files import Files
from timestone.format import names
from timestone.format.index_check import damaged_parts
from timestone.index import (
    SUMMARY,
    TRAILER_BYTES,
    TRAILER_MAGIC,
    Checkpoint,
    DamagedIndex,
    IndexHeader,
    Summary,
    Trailer,
)
from timestone.kernel.crc import crc32c
from timestone.kernel.entries import ENTRY, ENTRY_BYTES, HEADER_BYTES, NO_TOPIC, Entries, entry_position
from timestone.kernel.entry_checksum import EntrySeal
from timestone.recovery.record_check import ends, holding
from timestone.recovery.segment_report import Finding, State

Mask = npt.NDArray[np.bool_]

_CHUNK_ENTRIES = 1 << 16
_PAGE_BYTES = 4096
_UNKNOWN_BOOT = bytes(16)


def examine(
    files: Files,
    folder: Path,
    base_offset: int,
    log_id: int,
    *,
    topic_count: int = NO_TOPIC,
    deep: bool = False,
    expected_count: int = 0,
    most_count: int | None = None,
) -> Finding:
    """Examine one pair of files.

    topic_count: how many topics the log's dictionary has; names are flushed before records, so a record with
    an unknown topic was not durable. deep: check the bytes of every record, of sealed segments too.
    expected_count: how many records there must be because a later segment is known to be durable; what does
    not hold below that is damage, not a torn tail. most_count: where the next segment begins; entries from
    there on were superseded when a failed flush made the log write them again (timestone/writing/fsync_failover.py).

    Raises OSError, and UnsupportedFormat for files of a newer version.
    """
    index_path = names.index_path(folder, base_offset)
    try:
        index_fd = files.open(index_path)
    except FileNotFoundError:
        return _without_index(files, base_offset, _any_segment_path(files, folder, base_offset))
    try:
        size = files.size(index_fd)
        trailer = read_trailer(files, index_fd, index_path, log_id, base_offset, size)
        if trailer is not None:
            segment_path = names.segment_path(folder, base_offset, trailer.generation)
        else:
            segment_path = _any_segment_path(files, folder, base_offset)
        segment_fd = _open_or_none(files, segment_path)
        if segment_fd is None:
            used = _may_have_held_records(files, index_fd, log_id, base_offset)
            return _without_segment(base_offset, size, used=used)
        try:
            examiner = _Examiner(files, folder, base_offset, log_id, topic_count, index_fd, segment_fd)
            examiner.finding.trailer = trailer
            _, examiner.finding.generation = names.parse_segment(segment_path.name) or (0, 0)
            return examiner.run(deep, expected_count, most_count)
        finally:
            files.close(segment_fd)
    finally:
        files.close(index_fd)


def _without_index(files: Files, base_offset: int, segment_path: Path) -> Finding:
    segment_bytes = files.stat(segment_path).st_size
    if segment_bytes == 0 and not names.is_rewritten_segment(segment_path.name):
        return Finding(base_offset, State.UNCLOSED, unborn=True)
    return Finding(
        base_offset,
        State.ORPHAN,
        "the index is missing",
        segment_file_bytes=segment_bytes,
        lost_bytes=segment_bytes,
        loss_proven=True,
    )


def _without_segment(base_offset: int, index_bytes: int, *, used: bool) -> Finding:
    """`used`: by its index it may have held records."""
    if not used:
        return Finding(base_offset, State.UNCLOSED, unborn=True, index_file_bytes=index_bytes)
    reason = "the segment is missing"
    return Finding(base_offset, State.ORPHAN, reason, index_file_bytes=index_bytes, loss_proven=True)


def _may_have_held_records(files: Files, index_fd: int, log_id: int, base_offset: int) -> bool:
    """False for one of which nothing was durable and whose first entry does not hold. A power loss had cut short its
    only write; recovery removed both files, and of that a second power loss has kept the end of the segment only."""
    first = files.pread(index_fd, ENTRY_BYTES, HEADER_BYTES)
    if not first.strip(b"\0"):
        return False
    checkpoint = Checkpoint.latest(files.pread(index_fd, HEADER_BYTES, 0), log_id, base_offset)
    if checkpoint is None or checkpoint.entry_count or len(first) < ENTRY_BYTES:
        return True
    return bool(EntrySeal(log_id, base_offset).valid(np.frombuffer(first, dtype=ENTRY), 0)[0])


def _any_segment_path(files: Files, folder: Path, base_offset: int) -> Path:
    """The segment file of an index that does not say which it means: the one that was never rewritten, else the
    newest."""
    path = names.segment_path(folder, base_offset)
    try:
        files.stat(path)
    except FileNotFoundError:
        found = [
            segment for name in files.names(folder) if (segment := names.parse_segment(name)) is not None
        ]
        generations = [generation for base, generation in found if base == base_offset]
        path = names.segment_path(folder, base_offset, max(generations, default=0))
    return path


def _open_or_none(files: Files, path: Path) -> int | None:
    try:
        return files.open(path)
    except FileNotFoundError:
        return None


def read_trailer(
    files: Files, index_fd: int, path: Path, log_id: int, base_offset: int, size_bytes: int
) -> Trailer | None:
    """The trailer of an index file of this size, if it holds and is that segment's: what makes a segment sealed.

    Raises UnsupportedFormat, OSError."""
    if size_bytes < HEADER_BYTES + TRAILER_BYTES:
        return None
    try:
        trailer = Trailer.decode(files.pread(index_fd, TRAILER_BYTES, size_bytes - TRAILER_BYTES), path)
    except DamagedIndex:
        return None
    mine = (trailer.log_id, trailer.base_offset, trailer.file_bytes) == (log_id, base_offset, size_bytes)
    return trailer if mine else None


class _Examiner:
    """The state of one examination."""

    def __init__(
        self,
        files: Files,
        folder: Path,
        base_offset: int,
        log_id: int,
        topic_count: int,
        index_fd: int,
        segment_fd: int,
    ) -> None:
        self._files = files
        self._folder = folder
        self._path = names.index_path(folder, base_offset)
        self._log_id = log_id
        self._topic_count = topic_count
        self._index_fd = index_fd
        self._segment_fd = segment_fd
        self._framed: FramedBytes | None = None
        self._seal = EntrySeal(log_id, base_offset)
        self.finding = Finding(
            base_offset,
            State.UNCLOSED,
            index_file_bytes=files.size(index_fd),
            segment_file_bytes=files.size(segment_fd),
        )

    def run(self, deep: bool, expected_count: int, most_count: int | None) -> Finding:
        finding = self.finding
        page = self._files.pread(self._index_fd, HEADER_BYTES, 0)
        headless = False
        try:
            finding.header = IndexHeader.decode(page, self._path)
            if (finding.header.log_id, finding.header.base_offset) != (self._log_id, finding.base_offset):
                finding.state, finding.loss_proven = State.ORPHAN, True
                finding.reason = "the index belongs to another log or segment"
                finding.lost_bytes = finding.segment_file_bytes
                return finding
        except DamagedIndex as error:
            headless, finding.reason = True, str(error)
            finding.header = IndexHeader(self._log_id, finding.base_offset, 0, 0, _UNKNOWN_BOOT)
        finding.checkpoint = Checkpoint.latest(page, self._log_id, finding.base_offset)
        if finding.trailer is not None:
            finding.frames = finding.trailer.frames
            self._examine_sealed(deep)
        else:
            self._examine_unclosed(deep, expected_count, most_count)
            used = finding.watermark or finding.segment_file_bytes or finding.count or finding.lost_count
            if headless and not used:
                finding.unborn, finding.header, finding.reason = True, None, ""
        if finding.reason and finding.state is not State.TORN:
            finding.state = State.DAMAGED
        return finding

    def _examine_sealed(self, deep: bool) -> None:
        finding, trailer = self.finding, self.finding.trailer
        assert trailer is not None
        finding.count, finding.segment_bytes = trailer.entry_count, trailer.segment_bytes
        finding.last_timestamp_us = trailer.last_timestamp_us
        finding.removed_count = trailer.removed_count
        finding.topic_count = self._sealed_topic_count(trailer)
        finding.named_topics = self._named_topics(trailer)
        finding.state = State.SEALED
        if finding.segment_file_bytes < trailer.stored_bytes:
            finding.missing_bytes = trailer.stored_bytes - finding.segment_file_bytes
            finding.reason = (
                f"the segment has {finding.segment_file_bytes} of its {trailer.stored_bytes} bytes"
            )
        if deep or finding.reason:
            if trailer.frames is not None:
                finding.reason = self._open_framed() or finding.reason
            self._check_entries(trailer.entry_count, trailer.entry_count, check_data=True)
            self._say_damaged()
            if self._framed is not None and self._framed.damage and not finding.reason:
                number, reason = min(self._framed.damage.items())
                finding.reason = f"frame {number} of the segment file: {reason}"
        if deep and not finding.reason:
            finding.reason = "; ".join(damaged_parts(self._read_index, self._path, trailer))

    def _read_index(self, position: int, length_bytes: int) -> bytes:
        return self._files.pread(self._index_fd, length_bytes, position)

    def _named_topics(self, trailer: Trailer) -> int:
        """The rows of the summary are sorted, and records without a topic have the highest id."""
        end = entry_position(trailer.entry_count) + trailer.summary_count * SUMMARY.itemsize
        last = self._summary_rows(end - min(trailer.summary_count, 1) * SUMMARY.itemsize, end)
        return trailer.summary_count - int(np.count_nonzero(last["topic"] == NO_TOPIC))

    def _open_framed(self) -> str:
        """Read a compressed segment file through its frames from now on; returns what is wrong beside them."""
        finding = self.finding
        file = FramedFile(
            lambda position, length_bytes: self._files.pread(self._segment_fd, length_bytes, position),
            finding.segment_file_bytes,
            self._log_id,
            finding.base_offset,
        )
        raw_bytes = finding.trailer.segment_bytes if finding.trailer else 0
        self._framed, wrong = open_framed(
            self._files, self._folder, file, DecodedFrames(), finding.frames, raw_bytes
        )
        return wrong

    @property
    def _data_bytes(self) -> int:
        """Bytes of records that there may be."""
        return self._framed.size_bytes if self._framed is not None else self.finding.segment_file_bytes

    def _sealed_topic_count(self, trailer: Trailer) -> int:
        """One more than the highest topic id of a sealed segment. Its last rows tell; only when they tell of ids
        that the dictionary does not have are they proven, because then those ids must not be given out again."""
        end = entry_position(trailer.entry_count) + trailer.summary_count * SUMMARY.itemsize
        last = self._summary_rows(end - min(trailer.summary_count, 2) * SUMMARY.itemsize, end)
        count = _topic_count(last["topic"])
        if count <= self._topic_count:
            return count
        rows = self._summary_rows(entry_position(trailer.entry_count), end)
        if crc32c(rows.tobytes()) == trailer.summary_crc:
            return count
        proven = [
            entries["topic"][self._seal.valid(entries, at)]
            for at, entries in self._entries(trailer.entry_count)
        ]
        return max(map(_topic_count, proven), default=0)

    def _summary_rows(self, start: int, end: int) -> Summary:
        return np.frombuffer(self._files.pread(self._index_fd, end - start, start), dtype=SUMMARY)

    def _examine_unclosed(self, deep: bool, expected_count: int, most_count: int | None) -> None:
        finding = self.finding
        self._open_if_framed()
        room = max(0, (finding.index_file_bytes - HEADER_BYTES) // ENTRY_BYTES)
        watermark = max(finding.watermark, expected_count)
        superseded = most_count is not None and self._is_valid(most_count)
        if most_count is not None and superseded:
            room, watermark = most_count, min(watermark, most_count)
        if finding.checkpoint is None and finding.segment_file_bytes and not finding.reason:
            # The first one is flushed before the first record is written.
            finding.reason, finding.loss_proven = "no checkpoint holds", True
        if watermark > room:
            finding.reason = f"the index has room for {room} of its {watermark} durable entries"
            finding.loss_proven = True
        finding.count = self._check_entries(room, min(watermark, room), check_data=deep)
        rest = max(self._data_bytes - finding.segment_bytes, 0)
        if (rest and not superseded) or finding.lost_count:
            finding.lost_bytes = rest
            finding.state = State.TORN
        if not finding.reason and not finding.lost_count and finding.count < room and self._was_sealed():
            finding.reason = "the index was sealed, but its trailer does not hold any more"
        self._say_damaged()
        if deep and not finding.reason and finding.state is State.UNCLOSED and finding.count:
            finding.reason = "; ".join(damaged_parts(self._read_index, self._path, None))

    def _open_if_framed(self) -> None:
        """Growing segments are not rewritten: one that is compressed was sealed, and its trailer is damaged."""
        if self.finding.generation or is_framed(self._files.pread(self._segment_fd, TAG_BYTES, 0)):
            self._open_framed()
            if self._framed is not None and self._framed.table.sizes.any():
                self.finding.frames = self._framed.layout
            else:
                self._framed = None

    def _was_sealed(self) -> bool:
        """Does a trailer that cannot be believed end the file? A growing index ends with zeros, and with a page."""
        size = self.finding.index_file_bytes
        tail = self._read_index(size - TRAILER_BYTES, TRAILER_BYTES)
        return tail.strip(b"\0") != b"" and (size % _PAGE_BYTES != 0 or tail.startswith(TRAILER_MAGIC))

    def _is_valid(self, ordinal: int) -> bool:
        raw = self._files.pread(self._index_fd, ENTRY_BYTES, entry_position(ordinal))
        return len(raw) == ENTRY_BYTES and bool(self._seal.valid(np.frombuffer(raw, dtype=ENTRY), ordinal)[0])

    def _say_damaged(self) -> None:
        finding = self.finding
        if finding.damaged:
            finding.loss_proven = True
            first = finding.base_offset + finding.damaged[0]
            count = len(finding.damaged)
            finding.reason = (
                finding.reason or f"{count} damaged record{'s' * (count > 1)}, the first at offset {first}"
            )
            finding.state = State.DAMAGED

    def _check_entries(self, room: int, watermark: int, *, check_data: bool) -> int:
        """Look at up to `room` entries; returns how many records are served. Fills in what is damaged and
        what is lost."""
        finding = self.finding
        served, end_of_prefix = 0, False
        for ordinal, entries in self._entries(room):
            reserved = len(entries) - max(_used_count(entries), min(watermark - ordinal, len(entries)))
            entries = entries[: len(entries) - reserved]
            valid = self._seal.valid(entries, ordinal)
            if end_of_prefix:
                finding.lost_count += int(np.count_nonzero(valid))
                continue
            durable = np.arange(ordinal, ordinal + len(entries)) < watermark
            good = self._good(entries, valid, durable, check_data=check_data)
            bad_tail = np.flatnonzero(~good & ~durable)
            kept = int(bad_tail[0]) if len(bad_tail) else len(entries)
            finding.damaged += (np.flatnonzero(~good[:kept]) + ordinal).tolist()
            self._account(entries[:kept][good[:kept]])
            served += kept
            if kept < len(entries):
                end_of_prefix = True
                lost = int(np.count_nonzero(valid[kept:]))
                finding.lost_count += lost
                # A process writes records before their entries, so an entry without its bytes means that
                # pages were lost.
                finding.loss_proven = finding.loss_proven or lost > 0
            end_of_prefix = end_of_prefix or reserved > 0
        return served

    def _good(self, entries: Entries, valid: Mask, durable: Mask, *, check_data: bool) -> Mask:
        """Which of the `valid` entries point to bytes that are there and hold; bytes that were durable are only looked
        at with `check_data`. Fills in what is missing."""
        record_ends = ends(entries)
        within = record_ends <= self._data_bytes
        if not within[valid].all():
            self.finding.missing_bytes = int(record_ends[valid].max()) - self._data_bytes
        named = (entries["topic"] < self._topic_count) | (entries["topic"] == NO_TOPIC)
        good: Mask = valid & within & (named | durable)
        suspects = valid & within if check_data else valid & within & ~durable
        good[suspects] &= holding(entries[suspects], self._read_data)
        return good

    def _account(self, entries: Entries) -> None:
        if len(entries):
            self.finding.segment_bytes = max(self.finding.segment_bytes, int(ends(entries).max()))
            self.finding.first_timestamp_us = self.finding.first_timestamp_us or int(
                entries["timestamp_us"][0]
            )
            self.finding.last_timestamp_us = int(entries["timestamp_us"][-1])
            self.finding.topic_count = max(self.finding.topic_count, _topic_count(entries["topic"]))

    def _entries(self, room: int) -> Iterator[tuple[int, Entries]]:
        ordinal = 0
        while ordinal < room:
            wanted = min(_CHUNK_ENTRIES, room - ordinal) * ENTRY_BYTES
            raw = self._files.pread(self._index_fd, wanted, entry_position(ordinal))
            count = len(raw) // ENTRY_BYTES
            if count == 0:
                return
            yield ordinal, np.frombuffer(raw, dtype=ENTRY, count=count)
            ordinal += count

    def _read_data(self, position: int, length_bytes: int) -> bytes:
        if self._framed is not None:
            return self._framed.read(position, length_bytes)
        return self._files.pread(self._segment_fd, length_bytes, position)


def _used_count(entries: Entries) -> int:
    """How many entries there are up to the last that is not all zeros: behind that is space for more."""
    used = np.flatnonzero(entries.view(np.uint64))
    return int(used[-1]) * 8 // ENTRY_BYTES + 1 if len(used) else 0


def _topic_count(topic_ids: npt.NDArray[np.uint32]) -> int:
    named = topic_ids[topic_ids != NO_TOPIC]
    return int(named.max()) + 1 if len(named) else 0
