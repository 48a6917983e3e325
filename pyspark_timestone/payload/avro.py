"""Payloads that are Avro records in binary encoding, each with the one schema that the option gives. Needs the module
fastavro."""

import io
import json
import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.payload.formats import PayloadOptions
from pyspark_timestone.payload.rows import Row, RowPayload

_PLAIN: dict[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
    "fixed": BinaryType(),
    "enum": StringType(),
}
_LOGICAL: dict[tuple[str, str], DataType] = {
    ("int", "date"): DateType(),
    ("long", "timestamp-millis"): TimestampType(),
    ("long", "timestamp-micros"): TimestampType(),
    ("string", "uuid"): StringType(),
}
"""A logical type of another type than its own is none, as the specification has it."""
_WITHOUT_SPARK = (
    ("int", "time-millis"), ("long", "time-micros"),
    ("long", "local-timestamp-millis"), ("long", "local-timestamp-micros"),
)  # fmt: skip
"""fastavro decodes these into what no column of Spark's takes: every record would be bad."""
_DECIMAL_DIGITS = 38
"""Spark's decimals have no more."""
_NO_BYTES = ": a few bytes of a payload could say that an array has 2^62 of them"
_ERRORS = (ValueError, TypeError, IndexError, KeyError, EOFError, OverflowError, MemoryError, struct.error)
"""What reading bytes of another schema ends in."""


def spark_type(options: PayloadOptions) -> StructType:
    """Return the fields of the record. Raises InvalidOption."""
    schema = _schema(options)
    return _struct(schema, {schema["name"]: schema}, ())


def payload_format(options: PayloadOptions, type: pa.StructType) -> RowPayload:
    """Return the decoder. Raises InvalidOption."""
    schema = _schema(options)
    finished: Callable[[Any], Row] = _texts if "uuid" in options.schema else lambda row: row

    def decode(value: bytes) -> Row:
        stream = io.BytesIO(value)
        row: Any = fastavro.schemaless_reader(stream, schema, None)
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes too many")
        return finished(row)

    return RowPayload(type, decode, _ERRORS)


def _texts(value: Any) -> Any:
    """Return the value with its UUIDs, wherever they are in it, as text."""
    if isinstance(value, dict):
        return {name: _texts(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_texts(one) for one in value]
    return str(value) if isinstance(value, UUID) else value


def _schema(options: PayloadOptions) -> dict[str, Any]:
    """Return the schema as fastavro has parsed it: each name is there in full, with its namespace."""
    try:
        schema: Any = fastavro.parse_schema(json.loads(options.schema))
    except (
        ValueError, TypeError, KeyError, RecursionError, SchemaParseException, fastavro.schema.UnknownType,
    ) as error:  # fmt: skip
        raise InvalidOption(
            f"invalid payloadSchema: expected an Avro schema, got {options.schema!r:.60}: {error!r:.200}"
        ) from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise InvalidOption(f"invalid payloadSchema: expected an Avro record, got {options.schema!r:.60}")
    return schema


def _struct(schema: dict[str, Any], known: dict[str, Any], path: tuple[str, ...]) -> StructType:
    if schema["name"] in path:
        raise InvalidOption(
            f"invalid payloadSchema: expected records that do not contain themselves, got {schema['name']}"
        )
    if not schema.get("fields"):
        raise InvalidOption(
            f"invalid payloadSchema: expected records with fields, got {schema['name']} without any{_NO_BYTES}"
        )
    inside = (*path, schema["name"])
    return StructType(
        [StructField(field["name"], _type(field["type"], known, inside)) for field in schema["fields"]]
    )


def _type(schema: Any, known: dict[str, Any], path: tuple[str, ...]) -> DataType:
    if isinstance(schema, list):
        others = [one for one in schema if one != "null"]
        if len(others) != 1:
            raise InvalidOption(f"invalid payloadSchema: expected unions of null and one type, got {schema}")
        return _type(others[0], known, path)
    if isinstance(schema, str):
        if schema in _PLAIN:
            return _PLAIN[schema]
        if schema not in known:
            raise InvalidOption(f"invalid payloadSchema: expected types that Spark has, got {schema}")
        schema = known[schema]
    if "name" in schema:
        known[schema["name"]] = schema
    if (logical := _logical_type(schema)) is not None:
        return logical
    match schema["type"]:
        case "record":
            return _struct(schema, known, path)
        case "array":
            return ArrayType(_type(schema["items"], known, path))
        case "map":
            return MapType(StringType(), _type(schema["values"], known, path))
        case "fixed" if schema["size"] < 1:
            raise InvalidOption(
                f"invalid payloadSchema: expected fixed types of at least one byte, got {schema['name']}{_NO_BYTES}"
            )
        case kind:
            return _type(kind, known, path)


def _logical_type(schema: dict[str, Any]) -> DataType | None:
    """Return the Spark type of a logical type; None when the schema has none."""
    kind = (schema["type"], schema.get("logicalType", ""))
    if kind in (("bytes", "decimal"), ("fixed", "decimal")):
        precision = schema.get("precision", 0)
        if not 1 <= precision <= _DECIMAL_DIGITS:
            raise InvalidOption(
                f"invalid payloadSchema: expected decimals with a precision from 1 to {_DECIMAL_DIGITS}, got {schema}"
            )
        return DecimalType(precision, schema.get("scale", 0))
    if kind in _WITHOUT_SPARK:
        raise InvalidOption(
            f"invalid payloadSchema: expected types that Spark has, got the logical type {kind[1]}"
        )
    return _LOGICAL.get(kind)
