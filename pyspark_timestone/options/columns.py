"""The columns of the source: names, types and which of them can be null. Knows Spark's types and nothing of data."""

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
    # name: (type, may it be null)
    "log": (StringType(), False),
    "partition": (IntegerType(), False),
    "offset": (LongType(), False),
    "timestamp": (TimestampType(), False),
    "topic": (StringType(), True),
    "headers": (HEADERS, True),
    # Never null today. A tombstone has no value, so a promise here could not be kept.
    "value": (BinaryType(), True),
    "flags": (IntegerType(), False),
}

NAMES = tuple(_COLUMNS)
"""All columns, in the order in which the source offers them."""

_KAFKA_COLUMNS: dict[str, tuple[DataType, bool]] = {
    "key": (BinaryType(), True),
    **{name: _COLUMNS[name] for name in ("value", "topic", "partition", "offset", "timestamp")},
    "timestampType": (IntegerType(), False),
    "headers": _COLUMNS["headers"],
}

KAFKA_NAMES = tuple(_KAFKA_COLUMNS)
"""Those of Spark's Kafka source, in its order, for `layout=kafka`. What they hold: kafka_layout.py."""

_ALL_COLUMNS = {**_KAFKA_COLUMNS, **_COLUMNS}

_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
"""Spark 4.0 and 4.1 have no such parameter, and always take UTC."""


def source_schema(names: Sequence[str] = NAMES) -> StructType:
    """The schema of the columns `names`, in that order."""
    return StructType([StructField(name, *_ALL_COLUMNS[name]) for name in names])


def schema_with_payload(names: Sequence[str], payload: StructType | str) -> StructType | str:
    """The schema of the columns `names` with those that decoding adds; `payload` are the fields of the payload.

    When these are Spark's DDL, which only Spark can read, all of it is DDL."""
    if not isinstance(payload, str):
        return StructType([_field(name, payload) for name in names])
    fields = [f"`{COLUMN}` struct<{payload}>" if name == COLUMN else _ddl(_field(name)) for name in names]
    # As one type, which is what Spark tries first: its complaint is then of what is wrong in `payload`.
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
    # By the name that a session cannot give another meaning, as it can to `timestamp`.
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
            raise SchemaMismatch(f"the schema names the column {field.name!r} twice")
        if field.name == COLUMN and COLUMN in added:
            check_type(field.dataType)
            continue
        if field.name == ERROR_COLUMN and ERROR_COLUMN in added and field.dataType == StringType():
            continue
        if field.name not in names:
            raise SchemaMismatch(
                f"the source has no column {field.name!r}; it has {', '.join((*names, *added))}"
            )
        expected, _ = _ALL_COLUMNS[field.name]
        if field.dataType.simpleString() != expected.simpleString():
            raise SchemaMismatch(
                f"column {field.name!r} is {expected.simpleString()}, not {field.dataType.simpleString()};"
                " read it as it is and cast it in the query"
            )


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects for `schema`.

    It has to match exactly, nullability included, and Spark looks at the first batch of a task only: a later one
    that differs ends in an error that names no column. So every batch is built with this schema.
    """
    return to_arrow_schema(schema, **_UTC)
