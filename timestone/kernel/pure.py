"""Per-record loops of the engine in Python and numpy: the readable version of `_kernel.pyx`.

What belongs here: computations for each record of a batch, over columns in memory. Knows no file and no log, and keeps
no state. Both twins have the same names, arguments, results and errors, which the tests compare byte for byte; `loops`
chooses one of them.

A buffer is anything that bytes can be made of without a copy. A column is a buffer of integers in native byte order, or
one integer for all records. Raised by all: ValueError for a buffer whose size does not fit the others, OverflowError
for a number that does not fit its field, TypeError for anything else than a number or a buffer."""

import bisect
import collections
import operator
import os
import struct
import threading
import time
from array import array
from collections.abc import Iterator
from mmap import mmap
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from timestone.kernel.crc import crc32c, row_contributions
from timestone.kernel.entries import ENTRY, ENTRY_BYTES, NO_TOPIC, SHIPPED_FAULTS
from timestone.record import FLAG_REMOVED

# In quotes, because an array of Python 3.11 takes no parameters.
Buffer: TypeAlias = "bytes | bytearray | memoryview | mmap | array[Any] | npt.NDArray[Any]"
Column: TypeAlias = "int | Buffer"

_U32_MAX = 0xFFFF_FFFF
_FEW = 12  # below this number of entries, one library call each is faster than the fixed cost of numpy
assert array("I").itemsize == 4  # true on every platform of Python today
_UNSEALED = struct.Struct("<IIqIHHI")  # an entry without its own crc
_U32 = struct.Struct("<I")
_PLACE = struct.Struct("<II")  # the first two columns of an entry: position, length
_NAME = struct.Struct(
    "<IH"
)  # in front of a topic name: crc, length; in front of what the crc covers: id, length
DURATION_BUCKETS = 29
"""Up to 2^27 µs, and one for all longer durations."""
Lock = threading.Lock
"""Lock of which `acquire`, without a timeout, `release`, `locked` and `with` are used. The compiled one takes and gives
it in a tenth of the time."""


def gathered(
    payloads: list[bytes] | tuple[bytes, ...], apart_bytes: int
) -> tuple[tuple[bytes, ...], bytes, int, bytes]:
    """Return the payloads as pieces to keep, the length of each payload as u32, the sum of the lengths, and the
    checksum of each as u32 if they were copied; otherwise no checksums.

    The pieces are one copy of all payloads if their mean size is below `apart_bytes`, otherwise the payloads
    themselves."""
    lengths, size_bytes = _measured(payloads)
    if len(payloads) > 1 and size_bytes < apart_bytes * len(payloads):
        return (b"".join(payloads),), lengths, size_bytes, array("I", map(crc32c, payloads)).tobytes()
    return tuple(payloads), lengths, size_bytes, b""


def now_us() -> int:
    """Return microseconds since 1970; at least 1, because an index entry with timestamp 0 is invalid."""
    return max(1, time.time_ns() // 1000)


def drop_spare() -> int:
    """Free the memory of earlier results that is kept for later ones, and return its size in bytes. The compiled twin
    keeps some; this one keeps none."""
    return 0


def pwritev(fd: int, pieces: tuple[bytes, ...], position: int) -> int:
    """Write pieces back to back with one system call, and return how many bytes it wrote. At most 1,024 pieces. Here
    because it handles a column of objects; called by `Files` only."""
    return os.pwritev(fd, pieces, position)


class NumberedNames:
    """Names with a u32 number each, looked up many at a time. Among a hundred thousand, each lookup in a dict waits for
    memory three or four times; the compiled twin lets many lookups wait together. Names are str, not a subclass."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, name: str, number: int) -> None:
        """Assign a number to a name, unless it has one."""
        _check_name(name)
        _check_u32(number)
        self._numbers.setdefault(name, number)

    def find(self, name: str) -> int | None:
        """Return the number of a name, or None."""
        _check_name(name)
        return self._numbers.get(name)

    def find_all(self, names: tuple[str, ...]) -> bytes | None:
        """Return the number of each name, u32 each; None if one of them has no number."""
        if not isinstance(names, tuple):
            raise TypeError(f"invalid names: expected a tuple, got {type(names).__name__}")
        numbers = list(map(self._numbers.get, names))
        return None if None in numbers else array("I", cast(list[int], numbers)).tobytes()


def encoded_names(names: list[str | None], first_id: int, salt_crc: int) -> bytes:
    """Return the entries of topic names with ascending ids, as the file of the topics of a log has them."""
    _check_u32(salt_crc)
    if not 0 <= first_id <= _U32_MAX + 1 - len(names):
        raise OverflowError(f"{len(names)} names from id {first_id} on")
    pieces: list[bytes] = []
    for number, name in enumerate(names, first_id):
        encoded = (name or "").encode()
        size = len(encoded)
        if size > 0xFFFF:
            raise OverflowError(f"a name of {size} bytes")
        crc = crc32c(_NAME.pack(number, size) + encoded, salt_crc)
        pieces += (_NAME.pack(crc, size), encoded)
    return b"".join(pieces)


def _check_name(name: str) -> None:
    if type(name) is not str:
        raise TypeError(f"invalid name: expected str, got {type(name).__name__}")


def fill_entries(
    pieces: tuple[bytes, ...],
    lengths: bytes,
    topic_ids: Column,
    header_lengths: Column,
    flags: Column,
    *,
    position: int,
    timestamp_us: int,
    ordinal: int,
    salt_crc: int,
    data_crcs: bytes = b"",
) -> bytes:
    """Return the index entries of a batch of records that lie back to back in `pieces`, none across two of them.

    lengths: u32 each, with the size of the pieces as their sum. topic_ids: u32; header_lengths and flags: u16.
    position, ordinal: of the first record in its segment; all positions and ordinals have to fit into 32 bits.
    salt_crc: crc32c of the salt of an entry's own crc (`EntrySeal`). data_crcs: the checksum of each record, u32; or
    nothing to compute them here."""
    if not isinstance(pieces, tuple):
        raise TypeError(f"pieces are {type(pieces).__name__}, not a tuple")
    data_bytes = _measured(pieces)[1]
    for number in (position, timestamp_us, ordinal):
        _check_i64(number)
    _check_u32(salt_crc)
    for column in (lengths, data_crcs):
        if not isinstance(column, bytes):
            raise TypeError(f"invalid column: expected bytes, got {type(column).__name__}")
    sizes = _items(lengths, np.uint32)
    count = len(sizes)
    given = _items(data_crcs, np.uint32)
    if len(given) and len(given) != count:
        raise ValueError(f"invalid checksums: expected {count}, got {len(given)}")
    topics = _column(topic_ids, np.uint32, count)
    headers = _column(header_lengths, np.uint16, count)
    flag_column = _column(flags, np.uint16, count)
    _check_ordinals(count, ordinal)
    ends = np.cumsum(sizes, dtype=np.int64)
    total = int(ends[-1]) if count else 0
    if total != data_bytes:
        raise ValueError(f"invalid lengths: expected a sum of {data_bytes} bytes, got {total}")
    if position < 0 or position + total > _U32_MAX:
        raise OverflowError(f"{total} bytes at position {position}")
    crcs = _data_crcs(pieces, sizes, given)
    if count == 1:  # numpy would cost more than it saves
        columns = topics.item(), headers.item(), flag_column.item(), crcs.item()
        unsealed = _UNSEALED.pack(position, total, timestamp_us, *columns)
        return unsealed + _U32.pack(crc32c(unsealed, crc32c(_U32.pack(ordinal), salt_crc)))
    entries = np.empty(count, dtype=ENTRY)
    entries["length"] = sizes
    entries["position"] = position + ends - sizes
    entries["timestamp_us"] = timestamp_us
    entries["topic"] = topics
    entries["header_length"] = headers
    entries["flags"] = flag_column
    entries["data_crc"] = crcs
    entries["entry_crc"] = _entry_crcs(entries.view(np.uint8).reshape(count, ENTRY_BYTES), salt_crc, ordinal)
    return entries.tobytes()


def _data_crcs(
    pieces: tuple[bytes, ...], sizes: npt.NDArray[np.unsignedinteger], given: npt.NDArray[np.unsignedinteger]
) -> npt.NDArray[np.unsignedinteger]:
    """Return the checksum of each record, computed unless `given`. Raises ValueError for a record across two pieces."""
    records = _each(pieces, sizes.tolist())
    if not len(given):
        return np.fromiter(map(crc32c, records), dtype=np.uint32, count=len(sizes))
    if len(pieces) > 1:
        collections.deque(records, maxlen=0)
    return given


def _measured(payloads: list[bytes] | tuple[bytes, ...]) -> tuple[bytes, int]:
    """Return the length of each payload as u32, and their sum."""
    if not isinstance(payloads, list | tuple):
        raise TypeError(f"invalid payloads: expected a list or a tuple, got {type(payloads).__name__}")
    for kind in set(map(type, payloads)):
        if not issubclass(kind, bytes):
            raise TypeError(f"a payload is {kind.__name__}, not bytes")
    lengths = array("I", map(len, payloads))
    return lengths.tobytes(), sum(lengths)


def _each(pieces: tuple[bytes, ...], sizes: list[int]) -> Iterator[bytes]:
    """Yield the stored bytes of each record. Sizes and pieces have the same sum, so there is a piece for each."""
    following, piece, at = iter(pieces), b"", 0
    for size in sizes:
        while size and at == len(piece):
            piece, at = next(following), 0
        if size > len(piece) - at:
            raise ValueError(f"a record of {size} bytes has {len(piece) - at} in its piece")
        yield piece[at : at + size]
        at += size


class DurationCounts:
    """Number of durations by their number of bits in microseconds, rounded up, less one: no search for a bucket."""

    __slots__ = ("counts", "sum_ns")

    def __init__(self) -> None:
        self.counts = [0] * DURATION_BUCKETS
        self.sum_ns = 0

    def observe(self, duration_ns: int, count: int = 1) -> None:
        """Add `count` times the same duration. The last bucket takes what is too long for the others."""
        bits = (max(0, duration_ns - 1) // 1000).bit_length()
        self.counts[min(bits, DURATION_BUCKETS - 1)] += count
        self.sum_ns += duration_ns * count

    def add(self, other: "DurationCounts") -> None:
        """Add everything that another one has observed."""
        self.counts = [ours + theirs for ours, theirs in zip(self.counts, other.counts, strict=True)]
        self.sum_ns += other.sum_ns


def entry_crcs(entries: Buffer, salt_crc: int, first_ordinal: int) -> bytes:
    """Return the correct checksum of each entry itself, u32 each. first_ordinal: of the first entry."""
    _check_u32(salt_crc)
    rows = _rows(entries)
    _check_ordinals(len(rows), first_ordinal)
    return _entry_crcs(rows, salt_crc, first_ordinal).tobytes()


def valid_count(entries: Buffer, salt_crc: int, first_ordinal: int) -> int:
    """Return how many entries at the front are valid: the entry's checksum matches, and the timestamp is above 0."""
    _check_u32(salt_crc)
    rows = _rows(entries)
    _check_ordinals(len(rows), first_ordinal)
    columns = rows.reshape(-1).view(ENTRY)
    good = _entry_crcs(rows, salt_crc, first_ordinal) == columns["entry_crc"]
    good &= columns["timestamp_us"] > 0
    return len(good) if good.all() else int(good.argmin())


def proven_count(entries: Buffer, data: Buffer, position: int) -> int:
    """Return how many records at the front match the checksums in their entries. data: the bytes of the segment from
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


def shipped_flags(entries: bytes, data: bytes, topic_count: int) -> int:
    """Return the flags of all records together. entries: of consecutive records, as another replica has them; their
    positions and own checksums are not looked at. data: the stored bytes of all. topic_count: number of topics that
    they may use. Raises ValueError for anything that no leader can have written."""
    columns = np.frombuffer(entries, dtype=ENTRY)
    lengths, times, topics = columns["length"], columns["timestamp_us"], columns["topic"]
    ends = lengths.cumsum(dtype=np.int64)
    starts = columns.copy()
    starts["position"] = ends - lengths
    removed, has_topic = (columns["flags"] & FLAG_REMOVED) != 0, topics != NO_TOPIC
    for number, is_wrong in enumerate(
        (
            (ends[-1] if len(ends) else 0) != len(data) or proven_count(starts, data, 0) != len(columns),
            np.any(times <= 0) or np.any(times[1:] < times[:-1]),
            np.any(has_topic & (topics >= topic_count)),
            np.any(columns["header_length"] > lengths),
            np.any(removed & ((lengths > 0) | has_topic)),
        )
    ):
        if is_wrong:
            raise ValueError(f"invalid records: {SHIPPED_FAULTS[number]}")
    return int(np.bitwise_or.reduce(columns["flags"], initial=0))


def placed_entries(entries: bytes, *, position: int, ordinal: int, salt_crc: int) -> bytes:
    """Return entries of consecutive records for another place. position, ordinal, salt_crc: as for `fill_entries`."""
    _check_ordinals(len(entries) // ENTRY_BYTES, ordinal)
    columns = np.frombuffer(bytearray(entries), dtype=ENTRY)  # numpy would copy it field by field
    ends = position + columns["length"].cumsum(dtype=np.int64)
    if position < 0 or (len(ends) and ends[-1] > _U32_MAX):
        raise OverflowError(f"{ends[-1] - position} bytes at position {position}")
    columns["position"] = ends - columns["length"]
    columns["entry_crc"] = np.frombuffer(entry_crcs(columns, salt_crc, ordinal), dtype=np.uint32)
    return columns.tobytes()


def fitting(index: Buffer, place: int, count: int, max_bytes: int) -> tuple[int, int, int]:
    """Return how many of `count` records, whose entries begin at `place` of an index, have at most `max_bytes` together
    (at least one), their position in the segment, and their size in bytes. Entries are not checked."""
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
        raise ValueError(f"invalid column: {len(items)} bytes are not a multiple of {ENTRY_BYTES}")
    return items.reshape(-1, ENTRY_BYTES)


def _items(column: Buffer, kind: type[np.unsignedinteger]) -> npt.NDArray[np.unsignedinteger]:
    return np.frombuffer(column, dtype=kind)


def _column(column: Column, kind: type[np.unsignedinteger], count: int) -> npt.NDArray[np.unsignedinteger]:
    """Return an array of `count`, or one without a dimension for a single value."""
    if isinstance(column, int):
        if not 0 <= column <= np.iinfo(kind).max:
            raise OverflowError(f"{column} does not fit into {kind.__name__}")
        return np.asarray(column, dtype=kind)
    items = _items(column, kind)
    if len(items) != count:
        raise ValueError(f"invalid column: expected {count} values, got {len(items)}")
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
