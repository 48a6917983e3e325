"""Single records from segments whose files are open: the short path of `ReadableLog.record`.

Finds the segment, its entry and the bytes, and checks both. Everything unusual is left to the long path: no file is
opened here and no damage is reported. The compiled twin in `_kernel.pyx` takes half the time; `loops` chooses."""

import bisect
import os
import struct
from collections.abc import Callable, Sequence
from mmap import mmap

from timestone.kernel.crc import crc32c
from timestone.kernel.entries import ENTRY_BYTES, entry_position
from timestone.record import FLAG_REMOVED, Record

_UNSEALED = struct.Struct("<IIqIHHI")  # an entry without its own checksum
_U32 = struct.Struct("<I")

Pread = Callable[[int, int, int], bytes]


class SegmentRecords:
    """Records [base, end) of a log in the open files of one segment, until `close`."""

    def __init__(
        self,
        base_offset: int,
        end_offset: int,
        index: mmap | bytes,
        salt_crc: int,
        pread: Pread | None,
        fd: int,
        keeper: object,
    ) -> None:
        """pread: called with `fd`, length and position; None for the system call itself. keeper: object that keeps
        `fd` open, released by `close` and by the end of a read that was running then. Raises ValueError if the index
        has too few entries."""
        if not 0 <= base_offset <= end_offset or len(index) < entry_position(end_offset - base_offset):
            raise ValueError(f"no entries of the offsets {base_offset} to {end_offset} in {len(index)} bytes")
        self.base_offset = base_offset
        self.end_offset = end_offset
        self._salt_crc = salt_crc
        self._pread = pread
        self._fd = fd
        self._open: tuple[mmap | bytes, object] | None = (index, keeper)

    def close(self) -> None:
        """Stop reading; the files are about to be closed."""
        self.end_offset = self.base_offset
        self._open = None

    def stored(self, offset: int) -> tuple[int, int, int, bytes] | None:
        """Return timestamp, topic id, flags and payload of a record; None if it is not here, has a header block, was
        removed, or fails a check. Raises the errors of `pread`."""
        opened, ordinal = (
            self._open,
            offset - self.base_offset,
        )  # keep a reference during the read: another thread may close it
        if opened is None or not 0 <= ordinal < self.end_offset - self.base_offset:
            return None
        place = entry_position(ordinal)
        entry = opened[0][place : place + ENTRY_BYTES]
        position, length, timestamp_us, topic, header_length, flags, data_crc = _UNSEALED.unpack_from(entry)
        entry_crc = crc32c(entry[: _UNSEALED.size], crc32c(_U32.pack(ordinal), self._salt_crc))
        if timestamp_us <= 0 or entry_crc != _U32.unpack_from(entry, _UNSEALED.size)[0]:
            return None
        if header_length or flags & FLAG_REMOVED:
            return None
        data = self._read(length, position) if length else b""
        if len(data) != length or crc32c(data) != data_crc:
            return None
        return timestamp_us, topic, flags, data

    def _read(self, length: int, position: int) -> bytes:
        if self._pread is not None:
            return self._pread(self._fd, length, position)
        try:
            return os.pread(self._fd, length, position)
        except OSError:
            return b""  # the long path tries again and names the file


class OpenRecords:
    """Records of a log in open segments. Thread-safe."""

    def __init__(self, names: Sequence[str | None]) -> None:
        """names: topics by id, a list that grows."""
        self._names = names
        self._segments: list[SegmentRecords] = []

    def show(self, records: SegmentRecords) -> None:
        """Add the records of a segment, replacing earlier ones of the same segment. Closed ones are dropped."""
        if records.end_offset == records.base_offset:
            return  # closed in between, because another thread has opened newer ones
        kept = [one for one in self._segments if one.end_offset > one.base_offset]
        kept = [one for one in kept if one.base_offset != records.base_offset]
        self._segments = sorted([*kept, records], key=lambda one: one.base_offset)

    def clear(self) -> None:
        """Drop all segments."""
        self._segments = []

    def record(self, offset: int) -> Record | None:
        """Return the verified record at an offset; None if the long path must read it. Raises the errors of `pread`."""
        segments = self._segments
        place = bisect.bisect_right(segments, offset, key=lambda one: one.base_offset) - 1
        found = segments[place].stored(offset) if place >= 0 else None
        if found is None:
            return None
        timestamp_us, topic, flags, data = found
        name = self._names[topic] if topic < len(self._names) else None
        return Record(int(offset), timestamp_us, name, data, (), flags)
