"""Records on their way into a log: columns without offsets.

A front collects everything that arrived in one turn of its loop into one Draft a log, so the engine sees
batches whatever the number of clients and topics. What belongs here: building the columns and checking
limits. It knows no file."""

import itertools
import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from timestone.crc import crc32c
from timestone.entries import ENTRY, NO_TOPIC, EntrySeal
from timestone.errors import RecordTooLarge

Numbers = npt.NDArray[np.unsignedinteger]
Column = Sequence[int] | Numbers | int
_UNSEALED = struct.Struct("<IIqIHHI")  # an entry without its own crc, for a draft of one record


class Draft:
    """A batch of records to append. Immutable once built; holds copies, never views of a receive buffer.

    payloads: the stored bytes of each record: header block, then payload. Zero-length ones are legal.
    topic_ids (u32), flags (u16), header_lengths (u16): one value for all, or one a record.

    Raises ValueError or OverflowError when a column does not fit.
    """

    __slots__ = ("_payloads", "count", "flags", "header_lengths", "size_bytes", "topic_ids")

    def __init__(
        self,
        payloads: Sequence[bytes],
        topic_ids: Column = NO_TOPIC,
        *,
        flags: Column = 0,
        header_lengths: Column = 0,
    ) -> None:
        self._payloads = tuple(payloads)
        self.count = len(payloads)
        self.size_bytes = sum(map(len, payloads))
        self.topic_ids = _column(topic_ids, self.count, np.uint32)
        self.flags = _column(flags, self.count, np.uint16)
        self.header_lengths = _column(header_lengths, self.count, np.uint16)
        if not isinstance(header_lengths, int) or header_lengths:
            lengths = np.fromiter(map(len, payloads), dtype=np.uint32, count=self.count)
            if (lengths < self.header_lengths).any():
                raise ValueError("a header block is longer than its record")

    def check(self, record_bytes: int) -> None:
        """Raise RecordTooLarge when any record is over the limit. Nothing was written then."""
        if self.size_bytes > record_bytes and (longest := max(map(len, self._payloads))) > record_bytes:
            raise RecordTooLarge(longest, record_bytes)

    def data(self) -> bytes:
        """The stored bytes of all records, back to back."""
        return self._payloads[0] if self.count == 1 else b"".join(self._payloads)

    def entries(self, seal: EntrySeal, *, ordinal: int, position: int, timestamp_us: int) -> bytes:
        """The index entries of this draft when its first record gets `ordinal` and lies at `position`."""
        if self.count == 1:
            return self._single_entry(seal, ordinal, position, timestamp_us)
        entries = np.empty(self.count, dtype=ENTRY)
        lengths = np.fromiter(map(len, self._payloads), dtype=np.uint32, count=self.count)
        ends = np.cumsum(lengths, dtype=np.int64)
        entries["length"] = lengths
        entries["position"] = position + ends - lengths
        entries["timestamp_us"] = timestamp_us
        entries["topic"] = self.topic_ids
        entries["header_length"] = self.header_lengths
        entries["flags"] = self.flags
        entries["data_crc"] = np.fromiter(map(crc32c, self._payloads), dtype=np.uint32, count=self.count)
        seal.close(entries, ordinal)
        return entries.tobytes()

    def _single_entry(self, seal: EntrySeal, ordinal: int, position: int, timestamp_us: int) -> bytes:
        payload = self._payloads[0]
        return seal.close_one(
            _UNSEALED.pack(
                position,
                len(payload),
                timestamp_us,
                _first(self.topic_ids),
                _first(self.header_lengths),
                _first(self.flags),
                crc32c(payload),
            ),
            ordinal,
        )

    @classmethod
    def joined(cls, drafts: Sequence["Draft"]) -> "Draft":
        """One draft with the records of several, in order."""
        if len(drafts) == 1:
            return drafts[0]
        return cls(
            list(itertools.chain.from_iterable(draft._payloads for draft in drafts)),
            np.concatenate([_filled(draft.topic_ids, draft.count) for draft in drafts]),
            flags=np.concatenate([_filled(draft.flags, draft.count) for draft in drafts]),
            header_lengths=np.concatenate([_filled(draft.header_lengths, draft.count) for draft in drafts]),
        )


def _first(column: int | Numbers) -> int:
    return column if isinstance(column, int) else int(column[0])


def _column(column: Column, count: int, kind: type[np.unsignedinteger]) -> int | Numbers:
    """One value for all as it is, or an array of `count`. Raises ValueError or OverflowError for what does
    not fit."""
    if isinstance(column, int):
        if not 0 <= column <= np.iinfo(kind).max:
            raise OverflowError(f"{column} is not from 0 to {np.iinfo(kind).max}")
        return column
    numbers = np.asarray(column, dtype=kind)
    if numbers.shape != (count,):
        raise ValueError(f"{count} payloads with a column of shape {numbers.shape}")
    return numbers


def _filled(column: int | Numbers, count: int) -> Numbers:
    return np.full(count, column, dtype=np.uint32) if isinstance(column, int) else column
