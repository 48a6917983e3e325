"""Columns of the source: names, types and nullability. Knows Spark's types and no data."""

from collections.abc import Sequence
from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_timestone.errors import SchemaMismatch
from pyspark_timestone.payload.formats import COLUMN, ERROR_COLUMN, check_type

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

_COLUMNS: dict[str, tuple[DataType, bool]] = {
    # name: (type, nullable)
    "log": (StringType(), False),
    "partition": (IntegerType(), False),
    "offset": (LongType(), False),
    "timestamp": (TimestampType(), False),
    "topic": (StringType(), True),
    "headers": (HEADERS, True),
    # Null for a tombstone without payload.
    "value": (BinaryType(), True),
    "flags": (IntegerType(), False),
}

NAMES = tuple(_COLUMNS)
"""All columns, in the order of the source."""

_KAFKA_COLUMNS: dict[str, tuple[DataType, bool]] = {
    "key": (BinaryType(), True),
    **{name: _COLUMNS[name] for name in ("value", "topic", "partition", "offset", "timestamp")},
    "timestampType": (IntegerType(), False),
    "headers": _COLUMNS["headers"],
}

KAFKA_NAMES = tuple(_KAFKA_COLUMNS)
"""Columns of Spark's Kafka source, in its order, for `layout=kafka`. Their content: kafka_layout.py."""

_ALL_COLUMNS = {**_KAFKA_COLUMNS, **_COLUMNS}

_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
"""Spark 4.0 and 4.1 have no such parameter, and always take UTC."""


def source_schema(names: Sequence[str] = NAMES) -> StructType:
    """Return the schema of the columns `names`, in that order."""
    return StructType([StructField(name, *_ALL_COLUMNS[name]) for name in names])


def schema_with_payload(names: Sequence[str], payload: StructType | str) -> StructType | str:
    """Return the schema of the columns `names` with those that decoding adds. payload: the fields of the payload. If
    they are Spark's DDL, which only Spark can parse, the result is DDL."""
    if not isinstance(payload, str):
        return StructType([_field(name, payload) for name in names])
    fields = [f"`{COLUMN}` struct<{payload}>" if name == COLUMN else _ddl(_field(name)) for name in names]
    # As one type, which Spark tries first: its error is then about `payload`.
    return f"struct<{', '.join(fields)}>"


def _field(name: str, payload: StructType | None = None) -> StructField:
    if name == ERROR_COLUMN:
        return StructField(name, StringType())
    return (
        StructField(name, payload)
        if name == COLUMN and payload is not None
        else StructField(name, *_COLUMNS[name])
    )


def _ddl(field: StructField) -> str:
    # By the name that a session cannot redefine, unlike `timestamp`.
    kind = "timestamp_ltz" if isinstance(field.dataType, TimestampType) else field.dataType.simpleString()
    return f"`{field.name}` {kind}{'' if field.nullable else ' NOT NULL'}"


def check_schema(schema: StructType, added: Sequence[str] = (), names: Sequence[str] = NAMES) -> None:
    """Raise SchemaMismatch unless every field of `schema` is one of the columns `names` with its type, or one of those
    that decoding has `added`.

    Spark does not ask the source for its schema when the user gives one with `.schema(...)`, and then expects
    exactly that.
    """
    for field in schema.fields:
        if schema.names.count(field.name) > 1:
            raise SchemaMismatch(f"invalid schema: expected each column once, got {field.name!r} twice")
        if field.name == COLUMN and COLUMN in added:
            check_type(field.dataType)
            continue
        if field.name == ERROR_COLUMN and ERROR_COLUMN in added and field.dataType == StringType():
            continue
        if field.name not in names:
            raise SchemaMismatch(
                f"invalid schema: expected some of {', '.join((*names, *added))}, got {field.name!r}"
            )
        expected, _ = _ALL_COLUMNS[field.name]
        if field.dataType.simpleString() != expected.simpleString():
            raise SchemaMismatch(
                f"invalid schema: expected {expected.simpleString()} for {field.name!r}, got"
                f" {field.dataType.simpleString()}; read it as it is and cast it in the query"
            )


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects for `schema`. It must match exactly, nullability included, and Spark
    checks the first batch of a task only: a different later one ends in an error that names no column. So every batch
    is built with this schema."""
    return to_arrow_schema(schema, **_UTC)
