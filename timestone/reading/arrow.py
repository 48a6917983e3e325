"""Batches as Arrow columns. The only module of the engine that imports pyarrow, and only on demand."""

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timestone.record import FLAG_TOMBSTONE

if TYPE_CHECKING:
    from timestone.reading.batch import Batch

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        pa.field("log", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("topic", pa.string()),
        pa.field("headers", HEADERS),
        pa.field("value", pa.binary()),
        pa.field("flags", pa.int32(), nullable=False),
    ]
)

_INT32, _INT64, _TIMESTAMP = (SCHEMA.field(name).type for name in ("partition", "offset", "timestamp"))
_COLUMN_BYTES_MOST = 2**31 - 1
"""Positions of an Arrow column are i32."""
_MANY_RECORDS = 16
"""With so many records for each topic of the log, converting every topic name costs less than finding the names in
use."""


def record_batch(batch: "Batch") -> pa.RecordBatch:
    """Return all columns of SCHEMA."""
    made = columns(batch)
    return pa.RecordBatch.from_arrays([made[name]() for name in SCHEMA.names], schema=SCHEMA)


def columns(batch: "Batch") -> dict[str, Any]:
    """Return a function for each column of SCHEMA that builds it, so that callers pay only for the columns they use."""
    count = len(batch)
    return {
        "log": lambda: _repeated(batch.log, count),
        "partition": lambda: _repeated(batch.partition, count),
        "offset": lambda: _fixed(batch.offsets, _INT64),
        "timestamp": lambda: _fixed(batch.timestamps_us, _TIMESTAMP),
        "topic": lambda: _topics(batch),
        "headers": lambda: _headers(batch),
        "value": lambda: _values(batch),
        "flags": lambda: _fixed(batch.flags.astype(np.int32), _INT32),
    }


def _fixed(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return a column without nulls over the bytes of an array. A conversion by Arrow costs ten times as much, which
    counts with a thousand records."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


@functools.lru_cache(maxsize=16)
def _repeated(value: str | int | None, count: int) -> pa.Array:
    """Return a column with the same value everywhere. Cached, because the next batch usually needs the same."""
    return pa.repeat(pa.scalar(value, _INT32 if isinstance(value, int) else pa.string()), count)


@functools.lru_cache(maxsize=16)
def _no_headers(count: int) -> pa.Array:
    """Return a column of headers of records that have none."""
    return pa.nulls(count, type=HEADERS)


def _topics(batch: "Batch") -> pa.Array:
    """Return the topic column. Names are converted through a dictionary: each distinct one becomes a Python string
    once. Ids count from 0, so a table of them replaces a sort."""
    ids = np.ascontiguousarray(batch.topic_ids)
    if len(ids) and (ids == ids[0]).all():
        return _repeated(batch.topic(0), len(ids))
    nameless = ids >= len(batch.topics)  # NO_TOPIC is above all others
    mask = nameless if nameless.any() else None
    if len(batch.topics) <= len(batch) // _MANY_RECORDS:
        return pa.array(batch.topics.names(), type=pa.string()).take(pa.array(ids, mask=mask))
    ids = ids if mask is None else np.where(nameless, 0, ids)
    used = np.zeros(int(ids.max(initial=0)) + 1, dtype=np.bool_)
    used[ids] = True
    codes = ids if used.all() else (np.cumsum(used, dtype=np.int32) - 1)[ids]
    names = pa.array([batch.topics.name(topic) for topic in np.flatnonzero(used).tolist()], type=pa.string())
    return names.take(pa.array(codes, mask=mask))


def _headers(batch: "Batch") -> pa.Array:
    headed = np.flatnonzero(batch.header_lengths)
    if len(headed) == 0:
        return _no_headers(len(batch))
    rows: list[list[dict[str, Any]] | None] = [None] * len(batch)
    for number in headed.tolist():
        rows[number] = [
            {"key": name, "value": value} for name, value in batch.user_headers_of(number)
        ] or None
    return pa.array(rows, type=HEADERS)


def _values(batch: "Batch") -> pa.Array:
    """Return the payload column, with null for a record written without a payload: a flagged tombstone of no bytes."""
    values = _payloads(batch)
    tombstones = (batch.flags & FLAG_TOMBSTONE) != 0
    if not tombstones.any():
        return values
    missing = tombstones & (batch.lengths == batch.header_lengths)
    present = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.BinaryArray.from_buffers(values.type, len(values), [present, *values.buffers()[1:]])


def _payloads(batch: "Batch") -> pa.Array:
    """Return the bytes of all payloads. Arrow wants n + 1 rising positions: adjacent records have them as they are. If
    there are gaps (header blocks, or records that a filter left out), gaps and payloads become 2 n values over the same
    bytes, of which Arrow takes every second one."""
    count = len(batch)
    if count == 0:
        return pa.array([], type=pa.binary())
    starts = batch.starts
    firsts, ends = starts + batch.header_lengths, starts + batch.lengths
    if ends[-1] > _COLUMN_BYTES_MOST:
        raise ValueError(
            f"invalid batch: expected at most {_COLUMN_BYTES_MOST} bytes for an Arrow column, got {ends[-1]}"
        )
    data = pa.py_buffer(batch.data)
    if (firsts[1:] == ends[:-1]).all():
        positions = np.append(firsts, ends[-1]).astype(np.int32)
        return pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(positions), data])
    positions = np.empty(2 * count, dtype=np.int32)
    positions[0::2], positions[1::2] = firsts, ends
    pieces = pa.BinaryArray.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(positions), data])
    return pieces.take(pa.array(np.arange(0, 2 * count - 1, 2)))
