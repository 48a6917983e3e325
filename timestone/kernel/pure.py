"""The engine's per-record loops in Python and numpy: the readable twin of `_kernel.pyx`.

What belongs here: what is computed for each record of a batch, over columns in memory. It knows no file, no log, and
keeps no state. Both twins have the same names, arguments, results and errors, which the tests compare
byte for byte; `kernel` chooses one of them.

Buffers are anything that bytes can be made of without a copy. A column is a buffer of integers as this machine has
them, or one integer for all records. Raised by all: ValueError for a buffer whose size does not fit the others,
OverflowError for a number that does not fit its field, TypeError for what is no number or no buffer."""

import bisect
import collections
import operator
import os
import struct
from array import array
from collections.abc import Iterator
from mmap import mmap
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from timestone.kernel.crc import crc32c, row_contributions
from timestone.kernel.entries import ENTRY, ENTRY_BYTES

# In quotes, because an array of Python 3.11 takes no parameters.
Buffer: TypeAlias = "bytes | bytearray | memoryview | mmap | array[Any] | npt.NDArray[Any]"
Column: TypeAlias = "int | Buffer"

_U32_MAX = 0xFFFF_FFFF
_FEW = 12  # below this many entries one library call each beats the fixed cost of the numpy way
assert array("I").itemsize == 4  # everywhere that Python runs today
_UNSEALED = struct.Struct("<IIqIHHI")  # an entry without its own crc
_PLACE = struct.Struct("<II")  # the first two columns of an entry: position, length
_U32 = struct.Struct("<I")
_PIECES_MOST = 1024  # UIO_MAXIOV of Linux


def gathered(
    payloads: list[bytes] | tuple[bytes, ...], apart_bytes: int
) -> tuple[tuple[bytes, ...], bytes, int, bytes]:
    """The payloads in the pieces they are to be kept in, the length of each as u32, the sum of the lengths, and the
    checksum of each as u32 where they were copied anyway, else nothing.

    One piece of them all when they have less than `apart_bytes` on average, else they themselves."""
    lengths, size_bytes = _measured(payloads)
    if len(payloads) > 1 and size_bytes < apart_bytes * len(payloads):
        return (b"".join(payloads),), lengths, size_bytes, array("I", map(crc32c, payloads)).tobytes()
    return tuple(payloads), lengths, size_bytes, b""


def drop_spare() -> int:
    """Give the memory of earlier results back that is kept for the next ones, and say how many bytes that was. The
    compiled twin keeps some, this one none."""
    return 0


def pwritev(fd: int, pieces: tuple[bytes, ...], position: int) -> int:
    """The system call: write pieces back to back, as many bytes as it takes, and say how many. At most 1,024 pieces.

    Here because it takes a column of objects apart like everything else here; nobody but `Files` calls it."""
    return os.pwritev(fd, pieces, position)


class NumberedNames:
    """Names with a number each, u32, looked up many at a time. Of a hundred thousand, each look into a dict waits for
    memory three or four times; the compiled twin lets many of them wait together. Names are str and no subclass."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, name: str, number: int) -> None:
        """Give a name its number, unless it has one."""
        _check_name(name)
        _check_u32(number)
        self._numbers.setdefault(name, number)

    def find(self, name: str) -> int | None:
        """The number of a name, or None."""
        _check_name(name)
        return self._numbers.get(name)

    def find_all(self, names: tuple[str, ...]) -> bytes | None:
        """The number of each name, u32 each; None when one has none."""
        if not isinstance(names, tuple):
            raise TypeError(f"names are {type(names).__name__}, not a tuple")
        numbers = list(map(self._numbers.get, names))
        return None if None in numbers else array("I", cast(list[int], numbers)).tobytes()


def _check_name(name: str) -> None:
    if type(name) is not str:
        raise TypeError(f"a name is {type(name).__name__}, not str")


def fill_entries(
    pieces: tuple[bytes, ...],
    lengths: Buffer,
    topic_ids: Column,
    header_lengths: Column,
    flags: Column,
    *,
    position: int,
    timestamp_us: int,
    ordinal: int,
    salt_crc: int,
    data_crcs: Buffer = b"",
) -> bytes:
    """The index entries of a batch of records that lie back to back in `pieces`, none across two of them.

    lengths: u32 each, which have to add up to the size of the pieces. topic_ids: u32; header_lengths and flags: u16.
    position, ordinal: those of the first record in its segment; all positions and ordinals have to fit into 32 bits.
    salt_crc: the crc32c of what is put in front of an entry for its own crc (`EntrySeal`).
    data_crcs: the checksum of each record, u32; or nothing, then they are worked out here."""
    if not isinstance(pieces, tuple):
        raise TypeError(f"pieces are {type(pieces).__name__}, not a tuple")
    data_bytes = _measured(pieces)[1]
    _check_i64(timestamp_us)
    _check_u32(salt_crc)
    sizes = _items(lengths, np.uint32)
    count = len(sizes)
    crcs = _items(data_crcs, np.uint32)
    if len(crcs) and len(crcs) != count:
        raise ValueError(f"{count} records with {len(crcs)} checksums")
    topics = _column(topic_ids, np.uint32, count)
    headers = _column(header_lengths, np.uint16, count)
    flag_column = _column(flags, np.uint16, count)
    _check_ordinals(count, ordinal)
    ends = np.cumsum(sizes, dtype=np.int64)
    total = int(ends[-1]) if count else 0
    if total != data_bytes:
        raise ValueError(f"{data_bytes} bytes with lengths that add up to {total}")
    if position < 0 or position + total > _U32_MAX:
        raise OverflowError(f"{total} bytes at position {position}")
    records = _each(pieces, sizes.tolist())
    if not len(crcs):
        crcs = np.fromiter(map(crc32c, records), dtype=np.uint32, count=count)
    elif len(pieces) > 1:
        collections.deque(records, maxlen=0)  # none may lie across two
    if count == 1:  # numpy would cost more than it saves
        unsealed = _UNSEALED.pack(
            position,
            total,
            timestamp_us,
            int(topics if topics.ndim == 0 else topics[0]),
            int(headers if headers.ndim == 0 else headers[0]),
            int(flag_column if flag_column.ndim == 0 else flag_column[0]),
            int(crcs[0]),
        )
        return unsealed + _U32.pack(crc32c(unsealed, crc32c(_U32.pack(ordinal), salt_crc)))
    starts = ends - sizes
    entries = np.empty(count, dtype=ENTRY)
    entries["length"] = sizes
    entries["position"] = position + starts
    entries["timestamp_us"] = timestamp_us
    entries["topic"] = topics
    entries["header_length"] = headers
    entries["flags"] = flag_column
    entries["data_crc"] = crcs
    entries["entry_crc"] = _entry_crcs(entries.view(np.uint8).reshape(count, ENTRY_BYTES), salt_crc, ordinal)
    return entries.tobytes()


def write_records(
    segment_fd: int,
    index_fd: int,
    pieces: tuple[bytes, ...],
    lengths: Buffer,
    topic_ids: Column,
    header_lengths: Column,
    flags: Column,
    *,
    position: int,
    timestamp_us: int,
    ordinal: int,
    salt_crc: int,
    index_position: int,
    data_crcs: Buffer = b"",
) -> tuple[bytes, bool]:
    """What `fill_entries` returns, and whether the records are in their segment and the entries in their index: the two
    system calls of an append without what is done when one fails. After False either file may have some of it, as after
    an error of `Files.write_all`: write both again, which takes the same error to whoever knows what to do.

    Records in more than 1,024 pieces are not written. For a segment of the plain `Files` only."""
    entries = fill_entries(
        pieces,
        lengths,
        topic_ids,
        header_lengths,
        flags,
        position=position,
        timestamp_us=timestamp_us,
        ordinal=ordinal,
        salt_crc=salt_crc,
        data_crcs=data_crcs,
    )
    _check_i64(index_position)
    whole = len(pieces) <= _PIECES_MOST and _written(segment_fd, pieces, position)
    return entries, whole and _written(index_fd, (entries,), index_position)


def _written(fd: int, pieces: tuple[bytes, ...], position: int) -> bool:
    try:
        return os.pwritev(fd, pieces, position) == sum(map(len, pieces))
    except OSError:
        return False


def _measured(payloads: list[bytes] | tuple[bytes, ...]) -> tuple[bytes, int]:
    """The length of each payload as u32, and their sum."""
    if not isinstance(payloads, list | tuple):
        raise TypeError(f"payloads are {type(payloads).__name__}, no list and no tuple")
    for kind in set(map(type, payloads)):
        if not issubclass(kind, bytes):
            raise TypeError(f"a payload is {kind.__name__}, not bytes")
    lengths = array("I", map(len, payloads))
    return lengths.tobytes(), sum(lengths)


def _each(pieces: tuple[bytes, ...], sizes: list[int]) -> Iterator[bytes]:
    """The stored bytes of each record. Sizes and pieces add up to the same, so there is a piece for each."""
    following, piece, at = iter(pieces), b"", 0
    for size in sizes:
        while size and at == len(piece):
            piece, at = next(following), 0
        if size > len(piece) - at:
            raise ValueError(f"a record of {size} bytes has {len(piece) - at} in its piece")
        yield piece[at : at + size]
        at += size


def entry_crcs(entries: Buffer, salt_crc: int, first_ordinal: int) -> bytes:
    """What the own crc of each entry has to be, u32 each, when the first of them has this ordinal."""
    _check_u32(salt_crc)
    rows = _rows(entries)
    _check_ordinals(len(rows), first_ordinal)
    return _entry_crcs(rows, salt_crc, first_ordinal).tobytes()


def valid_count(entries: Buffer, salt_crc: int, first_ordinal: int) -> int:
    """How many entries at the front hold: the own crc is right, and the timestamp is above 0."""
    _check_u32(salt_crc)
    rows = _rows(entries)
    _check_ordinals(len(rows), first_ordinal)
    columns = rows.reshape(-1).view(ENTRY)
    good = _entry_crcs(rows, salt_crc, first_ordinal) == columns["entry_crc"]
    good &= columns["timestamp_us"] > 0
    return len(good) if good.all() else int(good.argmin())


def proven_count(entries: Buffer, data: Buffer, position: int) -> int:
    """How many records at the front have the bytes their entries promise, when `data` is what lies in the segment from
    `position` on."""
    _check_u32(position)
    columns = _rows(entries).reshape(-1).view(ENTRY)
    view = np.frombuffer(data, dtype=np.uint8).data
    starts = (columns["position"].astype(np.int64) - position).tolist()
    lengths, crcs = columns["length"].tolist(), columns["data_crc"].tolist()
    for number, (start, length, crc) in enumerate(zip(starts, lengths, crcs, strict=True)):
        if start < 0 or start + length > len(view) or crc32c(view[start : start + length]) != crc:
            return number
    return len(starts)


def fitting(index: Buffer, place: int, count: int, max_bytes: int) -> tuple[int, int, int]:
    """How many of `count` records, whose entries lie at `place` of an index, have at most `max_bytes` together; at
    least one. Then where they begin in the segment, and how many bytes they are. Entries are taken as they are."""
    view = np.frombuffer(index, dtype=np.uint8).data
    if count < 1 or place < 0 or place + count * ENTRY_BYTES > len(view):
        raise ValueError(f"{count} entries at {place} of {len(view)} bytes")
    _check_i64(max_bytes)

    def end_of(number: int) -> int:
        position, length = _PLACE.unpack_from(view, place + number * ENTRY_BYTES)
        return int(position + length)

    start: int = _PLACE.unpack_from(view, place)[0]
    fits = bisect.bisect_right(range(count), start + max_bytes, 1, key=end_of)
    return fits, start, max(0, end_of(fits - 1) - start)


def _entry_crcs(raw: npt.NDArray[np.uint8], salt_crc: int, first_ordinal: int) -> npt.NDArray[np.uint32]:
    count = len(raw)
    rows = np.empty((count, ENTRY_BYTES), dtype=np.uint8)
    ordinals = np.arange(first_ordinal, first_ordinal + count, dtype=np.int64).astype("<u4")
    rows[:, :4] = ordinals.view(np.uint8).reshape(count, 4)
    rows[:, 4:] = raw[:, :28]
    if count < _FEW:
        flat = rows.tobytes()
        crcs = [crc32c(flat[at : at + ENTRY_BYTES], salt_crc) for at in range(0, len(flat), ENTRY_BYTES)]
        return np.array(crcs, dtype=np.uint32)
    return row_contributions(rows) ^ np.uint32(crc32c(bytes(ENTRY_BYTES), salt_crc))


def _rows(entries: Buffer) -> npt.NDArray[np.uint8]:
    items = np.frombuffer(entries, dtype=np.uint8)
    if len(items) % ENTRY_BYTES:
        raise ValueError(f"{len(items)} bytes are no column of {ENTRY_BYTES}-byte items")
    return items.reshape(-1, ENTRY_BYTES)


def _items(column: Buffer, kind: type[np.unsignedinteger]) -> npt.NDArray[np.unsignedinteger]:
    return np.frombuffer(column, dtype=kind)


def _column(column: Column, kind: type[np.unsignedinteger], count: int) -> npt.NDArray[np.unsignedinteger]:
    """An array of `count`, or of no dimension for one value."""
    if isinstance(column, int):
        if not 0 <= column <= np.iinfo(kind).max:
            raise OverflowError(f"{column} does not fit into {kind.__name__}")
        return np.asarray(column, dtype=kind)
    items = _items(column, kind)
    if len(items) != count:
        raise ValueError(f"{count} records with a column of {len(items)}")
    return items


def _check_ordinals(count: int, first: int) -> None:
    if first < 0 or first + count > _U32_MAX + 1:
        raise OverflowError(f"{count} entries from ordinal {first} on")


def _check_u32(number: int) -> None:
    if not 0 <= operator.index(number) <= _U32_MAX:
        raise OverflowError(f"{number} does not fit into 32 bits")


def _check_i64(number: int) -> None:
    if not -(1 << 63) <= operator.index(number) < 1 << 63:
        raise OverflowError(f"{number} does not fit into 64 bits")
