"""Immutable run of records as columns, which every read returns. Operations on a million records slice these arrays; a
`Record` object is created only on demand. The payloads of all records lie in one buffer, so `to_arrow` passes Arrow the
same bytes."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, overload

import numpy as np
import numpy.typing as npt

from timestone.errors import MissingExtra
from timestone.format.topics import TopicDictionary
from timestone.kernel.entries import ENTRY, Entries
from timestone.record import Header, HeaderKind, Record, as_whole, decode_headers

if TYPE_CHECKING:
    import pyarrow

Columns = tuple[Entries, bytes | Callable[[], bytes], int]
"""Entries, the buffer that their positions refer to or a function that makes it, and the position of its start."""
_NO_ENTRIES = np.empty(0, dtype=ENTRY)
_STEP = 1024
"""Records that an iteration makes objects of at once: many more would not stay in the processor's cache."""
_FEW = 16
"""Up to so many numbers are handled in Python: numpy has a higher fixed cost."""


class Batch:
    """Records of one log in offset order. Safe to keep and to share between threads; owns its bytes.

    log, partition: the log of the records. topics: the dictionary of the log. next_offset: where the next read begins;
    beyond the last record if a filter skipped some."""

    __slots__ = (
        "_columns",
        "_data",
        "_data_position",
        "_made_entries",
        "_offsets",
        "log",
        "next_offset",
        "partition",
        "topics",
    )

    def __init__(
        self,
        log: str,
        partition: int,
        topics: TopicDictionary,
        *,
        offsets: npt.NDArray[np.int64] | range = range(0),
        entries: Entries = _NO_ENTRIES,
        data: bytes | Callable[[], bytes] = b"",
        data_position: int = 0,
        columns: Callable[[], Columns] | None = None,
        next_offset: int,
    ) -> None:
        """columns: called for the entries and the data when one of them is first used, instead of giving them."""
        self.log = log
        self.partition = partition
        self.topics = topics
        self.next_offset = next_offset
        self._offsets = offsets
        self._columns = columns
        self._made_entries = entries
        self._data = data
        self._data_position = data_position

    @classmethod
    def joined(cls, parts: Sequence["Batch"]) -> "Batch":
        """Return one batch with the records of several of one log, in order. Copies their bytes, and nothing else of
        their buffers if that is more than what lies between the records."""
        first, last = parts[0], parts[-1]
        entries = np.concatenate([part._entries for part in parts])
        pieces: list[bytes | memoryview] = []
        base, at = 0, 0
        for part in parts:
            own = entries[at : at + len(part)]
            at += len(part)
            if len(own) == 0:
                continue
            starts, lengths = part.starts, own["length"].astype(np.int64)
            low, high, size = int(starts[0]), int(starts[-1] + lengths[-1]), int(lengths.sum())
            view = memoryview(part.data)
            if high - low <= 2 * size:
                pieces.append(view[low:high])
                own["position"] = starts + (base - low)
                base += high - low
            else:
                pieces += [
                    view[start : start + length]
                    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
                ]
                own["position"] = base + np.cumsum(lengths) - lengths
                base += size
        return cls(
            first.log,
            first.partition,
            first.topics,
            offsets=np.concatenate([part.offsets for part in parts]),
            entries=entries,
            data=b"".join(pieces),
            next_offset=last.next_offset,
        )

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Offsets of the records, i64 (n,)."""
        offsets = self._offsets
        if isinstance(offsets, range):
            offsets = self._offsets = np.arange(offsets.start, offsets.stop, dtype=np.int64)
        return offsets

    @property
    def _entries(self) -> Entries:
        self._make_columns()
        return self._made_entries

    def _make_columns(self) -> None:
        columns = self._columns
        if columns is not None:  # two threads at once make the same ones
            self._made_entries, self._data, self._data_position = columns()
            self._columns = None

    @property
    def data(self) -> bytes:
        """The bytes that `starts` and `lengths` refer to. Records of several appends are copied together here, when
        their bytes are first used."""
        self._make_columns()
        data = self._data
        if not isinstance(data, bytes):
            data = self._data = data()
        return data

    @property
    def size_bytes(self) -> int:
        """Return the stored bytes of all records, header blocks included."""
        return int(self.lengths.sum(dtype=np.int64))

    def __len__(self) -> int:
        return len(self._offsets)

    def __bool__(self) -> bool:
        return len(self._offsets) > 0

    def __repr__(self) -> str:
        span = f"offsets {self.offsets[0]} to {self.offsets[-1]}" if len(self) else "empty"
        count = f"{len(self)} record{'s' * (len(self) != 1)}"
        return f"<Batch {self.log}-{self.partition}: {count}, {span}, next {self.next_offset}>"

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
        """Positions of the stored bytes of each record in `data`, i64 (n,)."""
        return self._entries["position"].astype(np.int64) - self._data_position

    @property
    def plain(self) -> bool:
        """Return whether no record has a header block."""
        lengths = self.header_lengths
        return not (any(lengths.tolist()) if len(lengths) <= _FEW else lengths.any())

    def payload(self, number: int) -> bytes:
        """Return the payload of one record, without its header block."""
        entry = self._entries[as_whole(number, "number")]
        start = int(entry["position"]) - self._data_position
        return self.data[start + int(entry["header_length"]) : start + int(entry["length"])]

    def payloads(self) -> list[bytes]:
        """Return the payloads of all records, without header blocks."""
        return self._payloads(slice(None))

    def _payloads(self, which: slice) -> list[bytes]:
        data, starts = self.data, self.starts[which]
        firsts, ends = starts + self.header_lengths[which], starts + self.lengths[which]
        return [data[first:end] for first, end in zip(firsts.tolist(), ends.tolist(), strict=True)]

    def header_block(self, number: int) -> bytes:
        """Return the header block of one record as stored; empty for a plain one."""
        entry = self._entries[as_whole(number, "number")]
        start = int(entry["position"]) - self._data_position
        return self.data[start : start + int(entry["header_length"])]

    def headers_of(self, number: int) -> tuple[Header, ...]:
        """Return all header items of one record, of every kind."""
        return decode_headers(self.header_block(number))

    def topic(self, number: int) -> str | None:
        """Return the topic of one record; None if it has none, or its name is lost."""
        return self.topics.name(int(self._entries["topic"][as_whole(number, "number")]))

    @overload
    def __getitem__(self, number: int) -> Record: ...

    @overload
    def __getitem__(self, number: slice) -> "Batch": ...

    def __getitem__(self, number: int | slice) -> "Record | Batch":
        """Return one record; for a slice, a batch over the same bytes and with the same `next_offset`. Raises
        IndexError, ValueError for a slice that goes backwards."""
        if isinstance(number, slice):
            if (number.step or 1) < 0:
                raise ValueError("invalid slice: expected a positive step, since a batch is in offset order")
            return self._part(number)
        entry = self._entries[as_whole(number, "number")]
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
        for start in range(0, len(self), _STEP):
            step = slice(start, start + _STEP)
            columns = zip(
                self.offsets[step].tolist(),
                self.timestamps_us[step].tolist(),
                self.topic_ids[step].tolist(),
                self._payloads(step),
                self.header_lengths[step].tolist(),
                self.flags[step].tolist(),
                strict=True,
            )
            for number, (offset, timestamp_us, topic, payload, header_length, flags) in enumerate(
                columns, start
            ):
                block = self.headers_of(number) if header_length else ()
                yield Record(offset, timestamp_us, name(topic), payload, block, flags)

    def select(self, mask: npt.NDArray[np.bool_]) -> "Batch":
        """Return the records where `mask` (n,) is true, over the same bytes."""
        if getattr(mask, "dtype", None) != np.bool_:
            raise TypeError(f"invalid mask: expected a numpy array of bool, got {mask!r:.60}")
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
        """Return the batch as Arrow columns: log, partition, offset, timestamp (us, UTC), topic, headers, value, flags.

        The `value` column shares this batch's bytes if the records are adjacent and have no header blocks; otherwise
        they are gathered once, in C. Raises MissingExtra without pyarrow, ValueError for a batch of 2 GiB or more, the
        limit of an Arrow column: read with a smaller `max_bytes`."""
        # Not at the top of the file: pyarrow is optional, and takes a quarter of a second to import.
        try:
            from timestone.reading.arrow import record_batch  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise MissingExtra("Arrow columns", error.name or "pyarrow", "arrow") from None

        return record_batch(self)

    def user_headers_of(self, number: int) -> list[tuple[str, bytes]]:
        """Return name and value of the user headers of one record, in order."""
        return [(item.name, item.value) for item in self.headers_of(number) if item.kind == HeaderKind.USER]
