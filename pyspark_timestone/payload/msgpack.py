"""Payloads as MessagePack maps. Needs the module msgpack.

As strict as JSON payloads: a field of the schema has the schema's type, or is null or missing; other fields are
ignored. Timestamps are MessagePack's own extension type."""

from typing import Any

import msgpack
import pyarrow as pa
from pyspark.sql.types import StructType

from pyspark_timestone.payload.formats import PayloadOptions
from pyspark_timestone.payload.json import spark_type as json_spark_type
from pyspark_timestone.payload.rows import Row, RowPayload

_TIMESTAMP_AS_DATETIME = 3
_ERRORS = (ValueError, TypeError, OverflowError, RecursionError, msgpack.exceptions.UnpackException)
"""The last but one is of a value that can be read and not be shown, so deep is it."""


def spark_type(options: PayloadOptions) -> StructType | str:
    """Return the fields, written as for JSON."""
    return json_spark_type(options)


def payload_format(options: PayloadOptions, type: pa.StructType) -> RowPayload:
    """Return the decoder."""

    def decode(value: bytes) -> Row:
        row = msgpack.unpackb(value, timestamp=_TIMESTAMP_AS_DATETIME, strict_map_key=False)
        if not isinstance(row, dict):
            raise ValueError(f"expected a map, got {row!r:.40}")
        _check(row, type, "payload")
        return row

    return RowPayload(type, decode, _ERRORS)


def _check(value: Any, kind: pa.DataType, name: str) -> None:
    """Raise ValueError where Arrow would change a value silently: 1.5 into an integer, bytes into a string or a list,
    true into a number."""
    if value is None:
        return
    if not _fits(value, kind):
        raise ValueError(f"{name} is {value!r:.40}, not {kind}")
    if pa.types.is_struct(kind):
        for field in kind:
            _check(value.get(field.name), field.type, f"{name}.{field.name}")
    elif pa.types.is_list(kind):
        for item in value:
            _check(item, kind.value_type, name)
    elif pa.types.is_map(kind):
        for key, item in value.items():
            _check(key, kind.key_type, name)
            _check(item, kind.item_type, name)


def _fits(value: Any, kind: pa.DataType) -> bool:
    if pa.types.is_integer(kind):
        return type(value) is int
    if pa.types.is_floating(kind):
        return type(value) in (int, float)
    if pa.types.is_string(kind):
        return isinstance(value, str)
    if pa.types.is_binary(kind):
        return isinstance(value, bytes)
    if pa.types.is_list(kind):
        return isinstance(value, list)
    if pa.types.is_map(kind) or pa.types.is_struct(kind):
        return isinstance(value, dict)
    if pa.types.is_temporal(kind):
        return not isinstance(value, (int, float))
    return True
