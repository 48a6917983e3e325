"""Read-only scan of the two files of one segment, for recovery, `inspect` and salvage.

The rules, from docs/durability.md:

- A valid trailer in an index file of the size that it states: the segment is sealed and trusted. Its records are
  checked when they are read.
- A checkpoint whose reserve ceiling is the end of its entries, and nothing behind them: the segment is closed, and the
  next owner continues it.
- Otherwise the segment is unclosed. W is the newest checkpoint; records below W were durable. From W on, every entry
  and the bytes it points to are checked. The torn tail begins at the first that fails: nothing from there on was
  acknowledged as synced.
- A record below W that fails its check is damaged: only this record is lost, its neighbours stay readable."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from timestone.compressed.frame_cache import DecodedFrames
from timestone.compressed.frame_table import TAG_BYTES, Read, is_framed
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
    topics_used,
)
from timestone.kernel.entries import ENTRY, ENTRY_BYTES, HEADER_BYTES, NO_TOPIC, Entries, entry_position
from timestone.kernel.entry_checksum import EntrySeal
from timestone.kernel.loops import crc32c
from timestone.recovery.record_check import ends, holding
from timestone.recovery.segment_report import SegmentScan, State
from timestone.writing.sealing import read_entries

Mask = npt.NDArray[np.bool_]

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
) -> SegmentScan:
    """Scan the index and segment file of one base offset.

    topic_count: number of names in the topic dictionary. Names are flushed before records, so a record with an unknown
    topic was not durable. deep: also check the bytes of every record of a sealed segment. expected_count: number of
    records that must exist because a later segment is durable; one below that fails as damage, not as a torn tail.
    most_count: ordinal at which the next segment begins; entries from there on were superseded when a failed flush made
    the log rewrite them (timestone/writing/fsync_failover.py).

    Raises OSError, and UnsupportedFormat for files of a newer version.
    """
    index_path = names.index_path(folder, base_offset)
    try:
        index_fd = files.open(index_path)
    except FileNotFoundError:
        return _without_index(files, base_offset, _any_segment_path(files, folder, base_offset))
    try:
        size = files.size(index_fd)
        trailer = read_trailer(files.reader(index_fd), size, index_path, log_id, base_offset)
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
            examiner.scan.trailer = trailer
            _, examiner.scan.generation = names.parse_segment(segment_path.name) or (0, 0)
            return examiner.run(deep, expected_count, most_count)
        finally:
            files.close(segment_fd)
    finally:
        files.close(index_fd)


def _without_index(files: Files, base_offset: int, segment_path: Path) -> SegmentScan:
    segment_bytes = files.stat(segment_path).st_size
    if segment_bytes == 0 and not names.is_rewritten_segment(segment_path.name):
        return SegmentScan(base_offset, State.UNCLOSED, unborn=True)
    return SegmentScan(
        base_offset,
        State.ORPHAN,
        "the index is missing",
        segment_file_bytes=segment_bytes,
        lost_bytes=segment_bytes,
        loss_proven=True,
    )


def _without_segment(base_offset: int, index_bytes: int, *, used: bool) -> SegmentScan:
    """used: the index shows that the segment may have held records."""
    if not used:
        return SegmentScan(base_offset, State.UNCLOSED, unborn=True, index_file_bytes=index_bytes)
    reason = "the segment is missing"
    return SegmentScan(base_offset, State.ORPHAN, reason, index_file_bytes=index_bytes, loss_proven=True)


def _may_have_held_records(files: Files, index_fd: int, log_id: int, base_offset: int) -> bool:
    """Return whether the lost segment may have held records.

    False if nothing was durable and the first entry is invalid: a power loss interrupted the only write, recovery
    removed both files, and a second power loss undid one of the two removals."""
    first = files.pread(index_fd, ENTRY_BYTES, HEADER_BYTES)
    if not first.strip(b"\0"):
        return False
    checkpoint = Checkpoint.latest(files.pread(index_fd, HEADER_BYTES, 0), log_id, base_offset)
    if checkpoint is None or checkpoint.entry_count or len(first) < ENTRY_BYTES:
        return True
    return bool(EntrySeal(log_id, base_offset).valid(np.frombuffer(first, dtype=ENTRY), 0)[0])


def _any_segment_path(files: Files, folder: Path, base_offset: int) -> Path:
    """Return the segment file to use with an index without a trailer: the original one, else the newest rewrite."""
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


def read_trailer(read: Read, size_bytes: int, path: Path, log_id: int, base_offset: int) -> Trailer | None:
    """Return the trailer of a sealed segment; None if the file has no valid trailer of this segment. read: reads the
    index, which has `size_bytes`. Raises UnsupportedFormat, OSError."""
    if size_bytes < HEADER_BYTES + TRAILER_BYTES:
        return None
    try:
        trailer = Trailer.decode(read(size_bytes - TRAILER_BYTES, TRAILER_BYTES), path)
    except DamagedIndex:
        return None
    mine = (trailer.log_id, trailer.base_offset, trailer.file_bytes) == (log_id, base_offset, size_bytes)
    return trailer if mine else None


def foreign_index(header: IndexHeader, log_id: int, base_offset: int) -> str:
    """Return why a header page does not belong to this segment of this log; empty if it does."""
    if header.log_id != log_id:
        return f"the index belongs to another log, with the id {header.log_id:016x}"
    if header.base_offset != base_offset:
        return f"the index is that of base offset {header.base_offset}, not {base_offset}"
    return ""


class _Examiner:
    """State of one scan."""

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
        self._read_index = files.reader(index_fd)
        self._segment_fd = segment_fd
        self._framed: FramedBytes | None = None
        self._seal = EntrySeal(log_id, base_offset)
        self.scan = SegmentScan(
            base_offset,
            State.UNCLOSED,
            index_file_bytes=files.size(index_fd),
            segment_file_bytes=files.size(segment_fd),
        )

    def run(self, deep: bool, expected_count: int, most_count: int | None) -> SegmentScan:
        scan = self.scan
        page = self._files.pread(self._index_fd, HEADER_BYTES, 0)
        headless = False
        try:
            scan.header = IndexHeader.decode(page, self._path)
            if foreign := foreign_index(scan.header, self._log_id, scan.base_offset):
                scan.state, scan.loss_proven = State.ORPHAN, True
                scan.reason = foreign
                scan.lost_bytes = scan.segment_file_bytes
                return scan
        except DamagedIndex as error:
            headless, scan.reason = True, str(error)
            scan.header = IndexHeader(self._log_id, scan.base_offset, 0, 0, _UNKNOWN_BOOT)
        scan.checkpoint = Checkpoint.latest(page, self._log_id, scan.base_offset)
        if scan.trailer is not None:
            scan.frames = scan.trailer.frames
            self._examine_sealed(deep)
        else:
            self._examine_unclosed(deep, expected_count, most_count)
            used = scan.watermark or scan.segment_file_bytes or scan.count or scan.lost_count
            if headless and not used:
                scan.unborn, scan.header, scan.reason = True, None, ""
        if scan.reason and scan.state is not State.TORN:
            scan.state = State.DAMAGED
        if scan.state is State.UNCLOSED and self._was_closed():
            scan.state = State.CLOSED
        return scan

    def _examine_sealed(self, deep: bool) -> None:
        scan, trailer = self.scan, self.scan.trailer
        assert trailer is not None
        scan.count, scan.segment_bytes = trailer.entry_count, trailer.segment_bytes
        scan.last_timestamp_us = trailer.last_timestamp_us
        scan.removed_count = trailer.removed_count
        end = entry_position(trailer.entry_count) + trailer.summary_count * SUMMARY.itemsize
        last = self._summary_rows(end - min(trailer.summary_count, 2) * SUMMARY.itemsize, end)["topic"]
        # The rows are sorted, with records without a topic last.
        scan.named_topics = trailer.summary_count - int(np.count_nonzero(last[-1:] == NO_TOPIC))
        scan.topic_count = self._sealed_topic_count(trailer, topics_used(last), end)
        scan.state = State.SEALED
        if scan.segment_file_bytes < trailer.stored_bytes:
            scan.missing_bytes = trailer.stored_bytes - scan.segment_file_bytes
            scan.reason = f"the segment has {scan.segment_file_bytes} of its {trailer.stored_bytes} bytes"
        if deep or scan.reason:
            if trailer.frames is not None:
                scan.reason = self._open_framed() or scan.reason
            self._check_entries(trailer.entry_count, trailer.entry_count, check_data=True)
            self._say_damaged()
            if self._framed is not None and self._framed.damage and not scan.reason:
                number, reason = min(self._framed.damage.items())
                scan.reason = f"frame {number} of the segment file: {reason}"
        if deep and not scan.reason:
            scan.reason = "; ".join(damaged_parts(self._read_index, self._path, trailer))

    def _open_framed(self) -> str:
        """Read the compressed segment file by frames. Return what is wrong outside the frames, or an empty string."""
        scan = self.scan
        read = self._files.reader(self._segment_fd)
        file = FramedFile(read, scan.segment_file_bytes, self._log_id, scan.base_offset)
        raw_bytes = scan.trailer.segment_bytes if scan.trailer else 0
        self._framed, wrong = open_framed(
            self._files, self._folder, file, DecodedFrames(), scan.frames, raw_bytes
        )
        return wrong

    @property
    def _data_bytes(self) -> int:
        """Return the upper bound of the bytes of records."""
        return self._framed.size_bytes if self._framed is not None else self.scan.segment_file_bytes

    def _sealed_topic_count(self, trailer: Trailer, count: int, end: int) -> int:
        """Return one more than the highest topic id of a sealed segment. count: the same by the last rows of its
        summary, which ends at `end`. Only ids that the dictionary lacks are verified by the entries, because these ids
        must not be assigned again."""
        if count <= self._topic_count:
            return count
        rows = self._summary_rows(entry_position(trailer.entry_count), end)
        if crc32c(rows.tobytes()) == trailer.summary_crc:
            return count
        proven = [
            entries["topic"][self._seal.valid(entries, at)]
            for at, entries in read_entries(self._files, self._index_fd, trailer.entry_count)
        ]
        return max(map(topics_used, proven), default=0)

    def _summary_rows(self, start: int, end: int) -> Summary:
        return np.frombuffer(self._files.pread(self._index_fd, end - start, start), dtype=SUMMARY)

    def _examine_unclosed(self, deep: bool, expected_count: int, most_count: int | None) -> None:
        scan = self.scan
        self._open_if_framed()
        room = max(0, (scan.index_file_bytes - HEADER_BYTES) // ENTRY_BYTES)
        watermark = max(scan.watermark, expected_count)
        superseded = most_count is not None and self._is_valid(most_count)
        if most_count is not None and superseded:
            room, watermark = most_count, min(watermark, most_count)
        if scan.checkpoint is None and scan.segment_file_bytes and not scan.reason:
            # The first one is flushed before the first record is written.
            scan.reason, scan.loss_proven = "no checkpoint holds", True
        if watermark > room:
            scan.reason = f"the index has room for {room} of its {watermark} durable entries"
            scan.loss_proven = True
        scan.count = self._check_entries(room, min(watermark, room), check_data=deep)
        rest = max(self._data_bytes - scan.segment_bytes, 0)
        if (rest and not superseded) or scan.lost_count:
            scan.lost_bytes = rest
            scan.state = State.TORN
        if not scan.reason and not scan.lost_count and scan.count < room and self._was_sealed():
            scan.reason = "the index was sealed, but its trailer does not hold any more"
        self._say_damaged()
        if deep and not scan.reason and scan.state is State.UNCLOSED and scan.count:
            scan.reason = "; ".join(damaged_parts(self._read_index, self._path, None))

    def _open_if_framed(self) -> None:
        """Growing segments are not rewritten: one that is compressed was sealed, and its trailer is damaged."""
        if self.scan.generation or is_framed(self._files.pread(self._segment_fd, TAG_BYTES, 0)):
            self._open_framed()
            if self._framed is not None and self._framed.table.sizes.any():
                self.scan.frames = self._framed.layout
            else:
                self._framed = None

    def _was_closed(self) -> bool:
        """Return whether the newest checkpoint is that of a close, and nothing was written since."""
        scan, checkpoint = self.scan, self.scan.checkpoint
        return (
            checkpoint is not None
            and checkpoint.closes(scan.base_offset)
            and checkpoint.entry_count == scan.count
            and checkpoint.segment_bytes == scan.segment_bytes == scan.segment_file_bytes
        )

    def _was_sealed(self) -> bool:
        """Return whether an invalid trailer ends the file. A growing index ends with zeros at a page border."""
        size = self.scan.index_file_bytes
        tail = self._read_index(size - TRAILER_BYTES, TRAILER_BYTES)
        return tail.strip(b"\0") != b"" and (size % _PAGE_BYTES != 0 or tail.startswith(TRAILER_MAGIC))

    def _is_valid(self, ordinal: int) -> bool:
        raw = self._files.pread(self._index_fd, ENTRY_BYTES, entry_position(ordinal))
        return len(raw) == ENTRY_BYTES and bool(self._seal.valid(np.frombuffer(raw, dtype=ENTRY), ordinal)[0])

    def _say_damaged(self) -> None:
        scan = self.scan
        if scan.damaged:
            scan.loss_proven = True
            first = scan.base_offset + scan.damaged[0]
            count = len(scan.damaged)
            scan.reason = (
                scan.reason or f"{count} damaged record{'s' * (count > 1)}, the first at offset {first}"
            )
            scan.state = State.DAMAGED

    def _check_entries(self, room: int, watermark: int, *, check_data: bool) -> int:
        """Check up to `room` entries. Return the number of records to serve; set the damaged and lost ones in the
        scan."""
        scan = self.scan
        served, end_of_prefix = 0, False
        for ordinal, entries in read_entries(self._files, self._index_fd, room):
            reserved = len(entries) - max(_used_count(entries), min(watermark - ordinal, len(entries)))
            entries = entries[: len(entries) - reserved]
            valid = self._seal.valid(entries, ordinal)
            if end_of_prefix:
                scan.lost_count += int(np.count_nonzero(valid))
                continue
            durable = np.arange(ordinal, ordinal + len(entries)) < watermark
            good = self._good(entries, valid, durable, check_data=check_data)
            bad_tail = np.flatnonzero(~good & ~durable)
            kept = int(bad_tail[0]) if len(bad_tail) else len(entries)
            scan.damaged += (np.flatnonzero(~good[:kept]) + ordinal).tolist()
            self._account(entries[:kept][good[:kept]])
            served += kept
            if kept < len(entries):
                end_of_prefix = True
                lost = int(np.count_nonzero(valid[kept:]))
                scan.lost_count += lost
                # Records are written before their entries: an entry without its bytes means that pages were lost.
                scan.loss_proven = scan.loss_proven or lost > 0
            end_of_prefix = end_of_prefix or reserved > 0
        return served

    def _good(self, entries: Entries, valid: Mask, durable: Mask, *, check_data: bool) -> Mask:
        """Return which of the `valid` entries point to intact bytes. Durable bytes are checked only with `check_data`.
        Sets `missing_bytes` in the scan."""
        record_ends = ends(entries)
        within = record_ends <= self._data_bytes
        if not within[valid].all():
            self.scan.missing_bytes = int(record_ends[valid].max()) - self._data_bytes
        named = (entries["topic"] < self._topic_count) | (entries["topic"] == NO_TOPIC)
        good: Mask = valid & within & (named | durable)
        suspects = valid & within if check_data else valid & within & ~durable
        good[suspects] &= holding(entries[suspects], self._read_data)
        return good

    def _account(self, entries: Entries) -> None:
        if len(entries):
            self.scan.segment_bytes = max(self.scan.segment_bytes, int(ends(entries).max()))
            self.scan.first_timestamp_us = self.scan.first_timestamp_us or int(entries["timestamp_us"][0])
            self.scan.last_timestamp_us = int(entries["timestamp_us"][-1])
            self.scan.topic_count = max(self.scan.topic_count, topics_used(entries["topic"]))

    def _read_data(self, position: int, length_bytes: int) -> bytes:
        if self._framed is not None:
            return self._framed.read(position, length_bytes)
        return self._files.pread(self._segment_fd, length_bytes, position)


def _used_count(entries: Entries) -> int:
    """Return the number of entries up to the last that is not all zeros; the rest is space allocated ahead."""
    used = np.flatnonzero(entries.view(np.uint64))
    return int(used[-1]) * 8 // ENTRY_BYTES + 1 if len(used) else 0
