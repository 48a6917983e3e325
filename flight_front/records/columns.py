"""Columns of a query from a batch of records: those of the engine, the key, and those decoded from JSON payloads."""

import json
from typing import Any

import pyarrow as pa

from flight_front.records.queries import KEY_FIELD, Query
from timestone.reading.arrow import columns
from timestone.reading.batch import Batch
from timestone.record import HeaderKind


def arrow_batch(batch: Batch, query: Query) -> pa.RecordBatch:
    """Return the columns of a query, in its order."""
    made = columns(batch)
    made[KEY_FIELD.name] = lambda: pa.array(_keys(batch), KEY_FIELD.type)
    arrays = [made[name]() for name in query.columns]
    if query.decode:
        arrays += _decoded(batch, query)
    return pa.RecordBatch.from_arrays(arrays, schema=query.schema)


def _keys(batch: Batch) -> list[bytes | None]:
    keys: list[bytes | None] = [None] * len(batch)
    for number, length in enumerate(batch.header_lengths.tolist()):
        if length:
            items = batch.headers_of(number)
            keys[number] = next((item.value for item in items if item.kind == HeaderKind.KEY), None)
    return keys


def _decoded(batch: Batch, query: Query) -> list[pa.Array]:
    """Return a column for each field. What is missing, is not JSON or has another type is null, as in Spark."""
    rows = [_object(payload) for payload in batch.payloads()]
    return [
        pa.array([_value(row.get(name), kind) for row in rows], kind) for name, kind in query.decode.items()
    ]


def _object(payload: bytes) -> dict[str, Any]:
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _value(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_boolean(kind):
        return value if isinstance(value, bool) else None
    if isinstance(value, bool):
        return None if not pa.types.is_string(kind) else str(value).lower()
    if pa.types.is_string(kind):
        return value if value is None or isinstance(value, str) else json.dumps(value)
    if pa.types.is_floating(kind):
        return float(value) if isinstance(value, int | float) and abs(value) < 1e308 else None
    bits: int = kind.bit_width - 1
    return value if isinstance(value, int) and -(1 << bits) <= value < 1 << bits else None
