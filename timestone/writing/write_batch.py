"""Records on their way into a log: columns without offsets.

A front collects everything that arrived in one turn of its loop into one Draft a log, so the engine sees
batches regardless of the number of clients and topics. What belongs here: building the columns and checking
limits. It knows no file."""

import sys
from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt

from timestone.errors import RecordTooLarge
from timestone.kernel import loops
from timestone.kernel.entries import NO_TOPIC
from timestone.kernel.entry_checksum import EntrySeal
from timestone.reading.stored_bytes import StoredBytes
from timestone.reading.tail_cache import SingleRecord
from timestone.record import FLAG_REMOVED

Numbers = npt.NDArray[np.unsignedinteger]
Column = Sequence[int] | Numbers | int
_LARGE_BYTES = 512
"""From this mean size on, handing the payloads to the kernel one by one is cheaper than copying them into one
buffer, whose pages are mostly new to the process; below it the copy is (docs/performance.md)."""
_FEW = range(0, 65, 4)
"""Columns of so many bytes, u32 each, are added up in Python: numpy takes longer to begin."""
_HUGE_BYTES = 64 * 1024
_U32_MAX, _U16_MAX = 0xFFFF_FFFF, 0xFFFF
_MOST = {np.uint32: _U32_MAX, np.uint16: _U16_MAX}  # np.iinfo takes longer than all else about a column


class Draft:
    """A batch of records to append. Immutable once built; holds bytes objects, never views of a receive
    buffer.

    payloads: the stored bytes of each record: header block, then payload. Zero-length ones are legal.
    topic_ids (u32), flags (u16), header_lengths (u16): one value for all, or one a record.

    Raises ValueError or OverflowError when a column does not fit.
    """

    __slots__ = ("count", "crcs", "flags", "header_lengths", "lengths", "size_bytes", "stored", "topic_ids")

    def __init__(
        self,
        payloads: Sequence[bytes],
        topic_ids: Column = NO_TOPIC,
        *,
        flags: Column = 0,
        header_lengths: Column = 0,
    ) -> None:
        known = payloads if isinstance(payloads, list | tuple) else tuple(payloads)
        pieces, lengths, size_bytes, crcs = loops.gathered(known, _LARGE_BYTES)
        self._fill(StoredBytes(pieces, size_bytes), lengths, topic_ids, flags, header_lengths, crcs)

    def __repr__(self) -> str:
        return f"<Draft: {self.count} records, {self.size_bytes} bytes>"

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
        """A draft of records whose stored bytes already lie back to back in `data`.

        lengths: u32 each, which have to add up to the size of `data`."""
        draft = cls.__new__(cls)
        draft._fill(StoredBytes((data,), len(data)), lengths, topic_ids, flags, header_lengths)
        if len(lengths) in _FEW:
            total = sum(memoryview(lengths).cast("I"))
        else:
            total = int(draft._sizes().sum(dtype=np.uint64))
        if total != len(data):
            raise ValueError(f"{len(data)} bytes with lengths that add up to {total}")
        return draft

    @classmethod
    def single(cls, payload: bytes, topic_id: int, flags: int = 0) -> Self:
        """A draft of one record without headers, in a third of the time."""
        if not (0 <= topic_id <= _U32_MAX and 0 <= flags <= _U16_MAX):
            raise OverflowError(f"topic id {topic_id} or flags {flags:#x} out of range")
        if flags & FLAG_REMOVED:
            raise ValueError("a record cannot be appended as removed")
        draft = cls.__new__(cls)
        draft.count, draft.size_bytes = 1, (size_bytes := len(payload))
        draft.stored = StoredBytes((payload,), size_bytes)
        draft.lengths = size_bytes.to_bytes(4, sys.byteorder)
        draft.topic_ids, draft.flags, draft.header_lengths, draft.crcs = topic_id, flags, 0, b""
        return draft

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
        """The stored bytes of all records, in order."""
        self.size_bytes = stored.size_bytes
        self.lengths = lengths
        """Stored bytes of each record, u32 each."""
        self.crcs = crcs
        """Of the stored bytes of each record, u32 each, where they were worked out on the way; else nothing."""
        self.count = count = len(lengths) // 4
        self.topic_ids = _column(topic_ids, count, np.uint32)
        self.flags = _column(flags, count, np.uint16)
        if (
            flags if isinstance(flags, int) else int(np.bitwise_or.reduce(self.flags, initial=0))
        ) & FLAG_REMOVED:
            raise ValueError("a record cannot be appended as removed")
        self.header_lengths = _column(header_lengths, count, np.uint16)
        headed = not isinstance(header_lengths, int) or header_lengths > 0
        if headed and (self._sizes() < self.header_lengths).any():
            raise ValueError("a header block is longer than its record")

    def check(self, record_bytes: int, topic_count: int) -> None:
        """Raise RecordTooLarge when a record is over the limit, ValueError when one has a topic id that its log, with
        so many topics, has not given out: recovery would take it for a torn write. Nothing was written then."""
        if (unknown := self._unknown_topic(topic_count)) is not None:
            raise ValueError(
                f"topic id {unknown} is none of this log's, which has {topic_count}: see Log.topic_id"
            )
        if self.size_bytes > record_bytes and (longest := int(self._sizes().max())) > record_bytes:
            raise RecordTooLarge(longest, record_bytes)

    def _unknown_topic(self, topic_count: int) -> int | None:
        ids = self.topic_ids
        if isinstance(ids, int):  # most drafts; numpy would take as long as a short write
            return ids if ids >= topic_count and ids != NO_TOPIC else None
        if int(ids.max(initial=0)) < topic_count:
            return None
        unknown = ids[(ids >= topic_count) & (ids != NO_TOPIC)]
        return int(unknown[0]) if len(unknown) else None

    def single_at(self, offset: int) -> SingleRecord | None:
        """The record of a draft made by `single`, once it has an offset; None for any other draft."""
        topic_id, flags = self.topic_ids, self.flags
        if (
            self.count != 1
            or self.header_lengths != 0
            or not (isinstance(topic_id, int) and isinstance(flags, int))
        ):
            return None
        return tuple.__new__(SingleRecord, (offset, topic_id, flags, 0, self.stored.pieces[0]))

    def entries(self, seal: EntrySeal, *, ordinal: int, position: int, timestamp_us: int) -> bytes:
        """The index entries of this draft when its first record gets `ordinal` and lies at `position`."""
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
    def joined(cls, drafts: Sequence["Draft"]) -> "Draft":
        """One draft with the records of several, in order."""
        if len(drafts) == 1:
            return drafts[0]
        counts = [draft.count for draft in drafts]
        joined = cls.__new__(cls)
        joined._fill(
            _together([draft.stored for draft in drafts]),
            b"".join([draft.lengths for draft in drafts]),
            _joined([draft.topic_ids for draft in drafts], counts),
            _joined([draft.flags for draft in drafts], counts),
            _joined([draft.header_lengths for draft in drafts], counts),
            b"".join([draft.crcs for draft in drafts]) if all(draft.crcs for draft in drafts) else b"",
        )
        return joined

    def _sizes(self) -> Numbers:
        return np.frombuffer(self.lengths, dtype=np.uint32)


def _together(parts: Sequence[StoredBytes]) -> StoredBytes:
    """The bytes of several drafts. Joined unless the pieces are so large that this would cost more than it saves
    the readers of the tail, who may be many."""
    pieces = tuple(piece for part in parts for piece in part.pieces)
    size_bytes = sum(part.size_bytes for part in parts)
    if size_bytes < _HUGE_BYTES * len(pieces):
        pieces = (b"".join(pieces),)
    return StoredBytes(pieces, size_bytes)


def _column(column: Column, count: int, kind: type[np.unsignedinteger]) -> int | Numbers:
    """One value for all as it is, or an array of `count`. Raises ValueError or OverflowError for what does
    not fit."""
    if isinstance(column, int):
        if not 0 <= column <= _MOST[kind]:
            raise OverflowError(f"{column} is not from 0 to {_MOST[kind]}")
        return column
    numbers = np.ascontiguousarray(column, dtype=kind)
    if numbers.shape != (count,):
        raise ValueError(f"{count} payloads with a column of shape {numbers.shape}")
    if isinstance(column, np.ndarray) and column.dtype != kind and (numbers != column).any():
        raise OverflowError(f"a column of {column.dtype} has values that do not fit {kind.__name__}")
    return numbers


def _joined(columns: Sequence[int | Numbers], counts: Sequence[int]) -> int | Numbers:
    """The columns of several drafts as one; still one value for all where they agree."""
    first = columns[0]
    if isinstance(first, int) and all(isinstance(column, int) and column == first for column in columns):
        return first
    return np.concatenate(
        [
            np.full(count, column, dtype=np.uint32) if isinstance(column, int) else column
            for column, count in zip(columns, counts, strict=True)
        ]
    )
