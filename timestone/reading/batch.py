"""An immutable run of records as columns: what every read returns.

Looking at a million records is slicing these arrays; a `Record` object is made only for who asks for one. The
payloads of all records lie in one buffer, so `to_arrow` hands Arrow the same bytes."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, overload

import numpy as np
import numpy.typing as npt

from timestone.format.topics import TopicDictionary
from timestone.kernel.entries import ENTRY, Entries
from timestone.record import Header, HeaderKind, Record, decode_headers

if TYPE_CHECKING:
    import pyarrow

_NO_ENTRIES = np.empty(0, dtype=ENTRY)
_NO_OFFSETS = np.empty(0, dtype=np.int64)
_FEW = 16
"""Up to so many numbers are looked at in Python: numpy takes longer to begin."""


class Batch:
    """Records of one log in offset order. Safe to keep and to share between threads; holds its bytes itself.

    log, partition: whose records they are. offsets: i64 (n,). data: the bytes that `starts` and `lengths` are about.
    topics: the dictionary of the log. next_offset: where to read on; beyond the last record when a filter skipped
    some."""

    __slots__ = ("_data_position", "_entries", "data", "log", "next_offset", "offsets", "partition", "topics")

    def __init__(
        self,
        log: str,
        partition: int,
        topics: TopicDictionary,
        *,
        offsets: npt.NDArray[np.int64] = _NO_OFFSETS,
        entries: Entries = _NO_ENTRIES,
        data: bytes = b"",
        data_position: int = 0,
        next_offset: int,
    ) -> None:
        self.log = log
        self.partition = partition
        self.topics = topics
        self.offsets = offsets
        self.data = data
        self.next_offset = next_offset
        self._entries = entries
        self._data_position = data_position

    def __len__(self) -> int:
        return len(self._entries)

    def __bool__(self) -> bool:
        return len(self._entries) > 0

    def __repr__(self) -> str:
        span = f"offsets {self.offsets[0]} to {self.offsets[-1]}" if len(self) else "empty"
        return f"<Batch {self.log}-{self.partition}: {len(self)} records, {span}, next {self.next_offset}>"

    @property
    def timestamps_us(self) -> npt.NDArray[np.int64]:
        """Append times, microseconds since 1970, i64 (n,)."""
        return self._entries["timestamp_us"]

    @property
    def topic_ids(self) -> npt.NDArray[np.uint32]:
        """Ids of topics in the log's dictionary, u32 (n,); NO_TOPIC for none."""
        return self._entries["topic"]

    @property
    def flags(self) -> npt.NDArray[np.uint16]:
        """The flags of records (`timestone.record`), u16 (n,)."""
        return self._entries["flags"]

    @property
    def header_lengths(self) -> npt.NDArray[np.uint16]:
        """Bytes of the header block at the front of each record, u16 (n,); 0 for none."""
        return self._entries["header_length"]

    @property
    def lengths(self) -> npt.NDArray[np.uint32]:
        """Stored bytes of each record, header block included, u32 (n,)."""
        return self._entries["length"]

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """Where the stored bytes of each record begin in `data`, i64 (n,)."""
        return self._entries["position"].astype(np.int64) - self._data_position

    @property
    def plain(self) -> bool:
        """No record has a header block."""
        lengths = self.header_lengths
        return not (any(lengths.tolist()) if len(lengths) <= _FEW else lengths.any())

    def payload(self, number: int) -> bytes:
        """The payload of one record, without its header block."""
        entry = self._entries[number]
        start = int(entry["position"]) - self._data_position
        return self.data[start + int(entry["header_length"]) : start + int(entry["length"])]

    def payloads(self) -> list[bytes]:
        """The payloads of all records, without header blocks."""
        data, starts = self.data, self.starts
        firsts = (starts + self.header_lengths).tolist()
        return [data[first:end] for first, end in zip(firsts, (starts + self.lengths).tolist(), strict=True)]

    def header_block(self, number: int) -> bytes:
        """The header block of one record as stored; empty for a plain one."""
        entry = self._entries[number]
        start = int(entry["position"]) - self._data_position
        return self.data[start : start + int(entry["header_length"])]

    def headers_of(self, number: int) -> tuple[Header, ...]:
        """All header items of one record, of every kind."""
        return decode_headers(self.header_block(number))

    def topic(self, number: int) -> str | None:
        """The topic of one record; None when it has none, or its name is lost."""
        return self.topics.name(int(self._entries["topic"][number]))

    @overload
    def __getitem__(self, number: int) -> Record: ...

    @overload
    def __getitem__(self, number: slice) -> "Batch": ...

    def __getitem__(self, number: int | slice) -> "Record | Batch":
        """One record; or for a slice a batch of these, over the same bytes and with the same `next_offset`. Raises
        IndexError, ValueError for a slice that goes backwards."""
        if isinstance(number, slice):
            if (number.step or 1) < 0:
                raise ValueError("a batch is in the order of offsets: a slice of it goes forward")
            return self._part(number)
        entry = self._entries[number]
        return Record(
            int(self.offsets[number]),
            int(entry["timestamp_us"]),
            self.topics.name(int(entry["topic"])),
            self.payload(number),
            self.headers_of(number) if entry["header_length"] else (),
            int(entry["flags"]),
        )

    def __iter__(self) -> Iterator[Record]:
        name = self.topics.name
        columns = zip(
            self.offsets.tolist(),
            self.timestamps_us.tolist(),
            self.topic_ids.tolist(),
            self.payloads(),
            self.header_lengths.tolist(),
            self.flags.tolist(),
            strict=True,
        )
        for number, (offset, timestamp_us, topic, payload, header_length, flags) in enumerate(columns):
            block = self.headers_of(number) if header_length else ()
            yield Record(offset, timestamp_us, name(topic), payload, block, flags)

    def select(self, mask: npt.NDArray[np.bool_]) -> "Batch":
        """The records where `mask` (n,) is true, over the same bytes."""
        return self if mask.all() else self._part(mask)

    def _part(self, which: npt.NDArray[np.bool_] | slice) -> "Batch":
        return Batch(
            self.log,
            self.partition,
            self.topics,
            offsets=self.offsets[which],
            entries=self._entries[which],
            data=self.data,
            data_position=self._data_position,
            next_offset=self.next_offset,
        )

    def to_arrow(self) -> "pyarrow.RecordBatch":
        """The batch as Arrow columns: log, partition, offset, timestamp (us, UTC), topic, headers, value,
        flags.

        The `value` column shares this batch's bytes when the records lie back to back without header blocks;
        else they are gathered once, in C. Needs pyarrow, else raises ModuleNotFoundError. Raises ValueError for a batch
        of 2 GiB or more, which no Arrow column takes: read with a smaller `max_bytes`.
        """
        # Not at the top of the file: pyarrow is optional, and takes a quarter of a second to import.
        try:
            from timestone.reading.arrow import record_batch  # noqa: PLC0415
        except ModuleNotFoundError as error:
            text = f"Arrow columns need {error.name}, which is not installed: pip install 'timestone[arrow]'"
            raise ModuleNotFoundError(text, name=error.name) from None

        return record_batch(self)

    def user_headers_of(self, number: int) -> list[tuple[str, bytes]]:
        """Name and value of the user headers of one record, in order."""
        return [(item.name, item.value) for item in self.headers_of(number) if item.kind == HeaderKind.USER]
