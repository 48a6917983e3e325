"""Write batch: records to append, as columns without offsets.

A front collects everything that arrived in one turn of its loop into one WriteBatch a log, so the engine sees
batches regardless of the number of clients and topics. Builds the columns and checks limits; knows no file."""

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from timestone.errors import RecordTooLarge
from timestone.kernel import loops
from timestone.kernel.entries import NO_TOPIC
from timestone.kernel.entry_checksum import EntrySeal
from timestone.reading.stored_bytes import StoredBytes
from timestone.record import FLAG_REMOVED, as_bytes, as_whole

Numbers = npt.NDArray[np.unsignedinteger]
Column = Sequence[int] | Numbers | int
Data = bytes | bytearray | memoryview
"""Of a payload or the value of a header. What is not bytes is copied."""
_LARGE_BYTES = 512
"""From this mean size on, passing the payloads to the kernel one by one is cheaper than copying them into one
buffer, whose pages are mostly new to the process (docs/performance.md)."""
_FEW = range(0, 65, 4)
"""u32 columns of these sizes are summed in Python: numpy has a higher fixed cost."""
_HUGE_BYTES = 64 * 1024
_U32_MAX, _U16_MAX = 0xFFFF_FFFF, 0xFFFF
_MOST = {np.uint32: _U32_MAX, np.uint16: _U16_MAX}  # np.iinfo takes longer than all else about a column


class WriteBatch(loops.Columns):
    """Batch of records to append. Immutable once built; holds bytes objects, never views of a receive buffer.

    payloads: the stored bytes of each record: header block, then payload. May be empty. topic_ids (u32), flags (u16),
    header_lengths (u16): one value for all, or one a record.

    Raises ValueError or OverflowError for a column that does not fit."""

    __slots__ = ()
    stored_type = StoredBytes

    def __init__(
        self,
        payloads: Sequence[Data],
        topic_ids: Column = NO_TOPIC,
        *,
        flags: Column = 0,
        header_lengths: Column = 0,
    ) -> None:
        known: Any = checked_list("payloads", payloads)
        try:
            pieces, lengths, size_bytes, crcs = loops.gathered(known, _LARGE_BYTES)
        except TypeError:  # rare: checking each payload first would cost as much as gathering them
            copied = [as_bytes(payload, "payload") for payload in known]
            pieces, lengths, size_bytes, crcs = loops.gathered(copied, _LARGE_BYTES)
        self._fill(StoredBytes(pieces, size_bytes), lengths, topic_ids, flags, header_lengths, crcs)

    def __repr__(self) -> str:
        return f"<WriteBatch: {self.count} record{'s' * (self.count != 1)}, {self.size_bytes} bytes>"

    @classmethod
    def from_columns(
        cls,
        data: bytes,
        lengths: bytes,
        topic_ids: Column = NO_TOPIC,
        *,
        flags: Column = 0,
        header_lengths: Column = 0,
    ) -> Self:
        """Build a batch of records whose stored bytes are concatenated in `data`.

        lengths: u32 each, with the size of `data` as their sum."""
        write_batch = cls.__new__(cls)
        write_batch._fill(StoredBytes((data,), len(data)), lengths, topic_ids, flags, header_lengths)
        if len(lengths) in _FEW:
            total = sum(memoryview(lengths).cast("I"))
        else:
            total = int(write_batch._sizes().sum(dtype=np.uint64))
        if total != len(data):
            raise ValueError(f"invalid lengths: expected a sum of {len(data)} bytes, got {total}")
        return write_batch

    def _fill(
        self,
        stored: StoredBytes,
        lengths: bytes,
        topic_ids: Column,
        flags: Column,
        header_lengths: Column,
        crcs: bytes = b"",
    ) -> None:
        self.stored = stored
        self.size_bytes = stored.size_bytes
        self.lengths = lengths
        self.crcs = crcs
        self.count = count = len(lengths) // 4
        self.topic_ids = _column("topic_ids", topic_ids, count, np.uint32)
        self.flags = _column("flags", flags, count, np.uint16)
        if (
            flags if isinstance(flags, int) else int(np.bitwise_or.reduce(self.flags, initial=0))
        ) & FLAG_REMOVED:
            raise ValueError("a record cannot be appended as removed")
        self.header_lengths = _column("header_lengths", header_lengths, count, np.uint16)
        headed = not isinstance(header_lengths, int) or header_lengths > 0
        if headed and (self._sizes() < self.header_lengths).any():
            raise ValueError("invalid header_lengths: expected at most the length of each record, got more")

    def check(self, record_bytes: int, topic_count: int) -> None:
        """Raise RecordTooLarge for a record over the limit, and ValueError for a topic id that the log has not
        assigned, which recovery would take for a torn write. topic_count: number of topics of the log."""
        ids = self.topic_ids
        if not isinstance(ids, int) or topic_count <= ids != NO_TOPIC:  # one known topic is the usual case
            self._check_topics(topic_count)
        if self.size_bytes > record_bytes and (longest := int(self._sizes().max())) > record_bytes:
            raise RecordTooLarge(longest, record_bytes)

    def _check_topics(self, topic_count: int) -> None:
        ids = np.atleast_1d(self.topic_ids)
        if int(ids.max(initial=0)) < topic_count:
            return
        unknown = ids[(ids >= topic_count) & (ids != NO_TOPIC)]
        if len(unknown):
            raise ValueError(
                f"invalid topic id: expected one of the {topic_count} of this log (Log.topic_id), got {unknown[0]}"
            )

    def entries(self, seal: EntrySeal, *, ordinal: int, position: int, timestamp_us: int) -> bytes:
        """Return the index entries of the batch. ordinal, position: of its first record."""
        return loops.fill_entries(
            self.stored.pieces,
            self.lengths,
            self.topic_ids,
            self.header_lengths,
            self.flags,
            position=position,
            timestamp_us=timestamp_us,
            ordinal=ordinal,
            salt_crc=seal.salt_crc,
            data_crcs=self.crcs,
        )

    @classmethod
    def joined(cls, write_batches: Sequence["WriteBatch"]) -> "WriteBatch":
        """Return one batch with the records of several, in order."""
        if len(write_batches) == 1:
            return write_batches[0]
        counts = [write_batch.count for write_batch in write_batches]
        joined = cls.__new__(cls)
        joined._fill(
            _together([write_batch.stored for write_batch in write_batches]),
            b"".join([write_batch.lengths for write_batch in write_batches]),
            _joined([write_batch.topic_ids for write_batch in write_batches], counts),
            _joined([write_batch.flags for write_batch in write_batches], counts),
            _joined([write_batch.header_lengths for write_batch in write_batches], counts),
            b"".join([write_batch.crcs for write_batch in write_batches])
            if all(write_batch.crcs for write_batch in write_batches)
            else b"",
        )
        return joined

    def _sizes(self) -> Numbers:
        return np.frombuffer(self.lengths, dtype=np.uint32)


def _together(parts: Sequence[StoredBytes]) -> StoredBytes:
    """Return the bytes of several batches, joined unless the pieces are so large that joining costs more than it
    saves the readers of the tail."""
    pieces = tuple(piece for part in parts for piece in part.pieces)
    size_bytes = sum(part.size_bytes for part in parts)
    if size_bytes < _HUGE_BYTES * len(pieces):
        pieces = (b"".join(pieces),)
    return StoredBytes(pieces, size_bytes)


def check_write_batch(value: object) -> None:
    """Raise TypeError unless a value is a WriteBatch."""
    if not isinstance(value, WriteBatch):
        raise TypeError(f"invalid submission: expected a WriteBatch, got {type(value).__name__}")


def checked_flags(flags: int) -> int:
    """Return flags that fit. Raises TypeError, ValueError."""
    flags = as_whole(flags, "flags")
    if not 0 <= flags <= _U16_MAX:
        raise ValueError(f"invalid flags: expected 0 to {_U16_MAX}, got {flags}")
    return flags


def checked_list(name: str, values: Any) -> Sequence[Any]:
    """Return values as a list or tuple; themselves if they are one. Raises TypeError with the name of an argument."""
    if isinstance(values, list | tuple):
        return values
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise TypeError(f"invalid {name}: expected a sequence, got {values!r:.60}")
    return tuple(values)


def _column(name: str, column: Column, count: int, kind: type[np.unsignedinteger]) -> int | Numbers:
    """Return one value for all, or an array of `count`. Raises ValueError or OverflowError for a column that does
    not fit."""
    if isinstance(column, int):
        if not 0 <= column <= _MOST[kind]:
            raise OverflowError(f"invalid {name}: expected a value from 0 to {_MOST[kind]}, got {column}")
        return column
    try:
        numbers = np.ascontiguousarray(column, dtype=kind)
    except (TypeError, ValueError):
        raise TypeError(f"invalid {name}: expected whole numbers, got {column!r:.60}") from None
    if numbers.shape != (count,):
        raise ValueError(f"invalid {name}: expected {count} values, got shape {numbers.shape}")
    if isinstance(column, np.ndarray) and column.dtype != kind and (numbers != column).any():
        raise OverflowError(
            f"invalid {name}: expected values of {kind.__name__}, got others of {column.dtype}"
        )
    return numbers


def _joined(columns: Sequence[int | Numbers], counts: Sequence[int]) -> int | Numbers:
    """Return the columns of several batches as one; one value for all if they agree."""
    first = columns[0]
    if isinstance(first, int) and all(isinstance(column, int) and column == first for column in columns):
        return first
    return np.concatenate(
        [
            np.full(count, column, dtype=np.uint32) if isinstance(column, int) else column
            for column, count in zip(columns, counts, strict=True)
        ]
    )
