"""Payloads that are Avro records in binary encoding, each with the one schema that the option gives. Needs the module
fastavro."""

import io
import json
import struct
from typing import Any

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
from pyspark_timestone.payload import PayloadOptions
from pyspark_timestone.payload_rows import Row, RowPayload

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
_LOGICAL: dict[str, DataType] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "uuid": StringType(),
}
_ERRORS = (ValueError, TypeError, IndexError, KeyError, EOFError, OverflowError, MemoryError, struct.error)
"""What reading bytes of another schema ends in."""


def spark_type(options: PayloadOptions) -> StructType:
    """The fields of the record. Raises InvalidOption."""
    schema = _schema(options)
    return _struct(schema, {schema["name"]: schema}, ())


def payload_format(options: PayloadOptions, type: pa.StructType) -> RowPayload:
    """The decoder. Raises InvalidOption."""
    schema = fastavro.parse_schema(_schema(options))

    def decode(value: bytes) -> Row:
        stream = io.BytesIO(value)
        row: Any = fastavro.schemaless_reader(stream, schema, None)
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes too many")
        return _texts(row)

    return RowPayload(type, decode, _ERRORS)


def _texts(row: Row) -> Row:
    return {name: str(value) if _is_uuid(value) else value for name, value in row.items()}


def _is_uuid(value: Any) -> bool:
    return type(value).__name__ == "UUID"


def _schema(options: PayloadOptions) -> dict[str, Any]:
    try:
        schema = json.loads(options.schema)
        fastavro.parse_schema(schema)
    except (ValueError, TypeError, SchemaParseException, fastavro.schema.UnknownType) as error:
        raise InvalidOption(f"payloadSchema is no Avro schema: {error}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise InvalidOption("payloadSchema has to be an Avro record")
    return schema


def _struct(schema: dict[str, Any], known: dict[str, Any], path: tuple[str, ...]) -> StructType:
    if schema["name"] in path:
        raise InvalidOption(
            f"payloadSchema: the record {schema['name']} contains itself, which Spark cannot hold"
        )
    inside = (*path, schema["name"])
    return StructType(
        [StructField(field["name"], _type(field["type"], known, inside)) for field in schema["fields"]]
    )


def _type(schema: Any, known: dict[str, Any], path: tuple[str, ...]) -> DataType:
    if isinstance(schema, list):
        others = [one for one in schema if one != "null"]
        if len(others) != 1:
            raise InvalidOption(
                f"payloadSchema: a union of {len(others)} types is no type of Spark: {schema}"
            )
        return _type(others[0], known, path)
    if isinstance(schema, str):
        if schema in _PLAIN:
            return _PLAIN[schema]
        if schema not in known:
            raise InvalidOption(f"payloadSchema: {schema} is no type of Spark")
        schema = known[schema]
    if "name" in schema:
        known[schema["name"]] = schema
    if schema.get("logicalType") == "decimal":
        return DecimalType(schema["precision"], schema.get("scale", 0))
    if schema.get("logicalType") in _LOGICAL:
        return _LOGICAL[schema["logicalType"]]
    match schema["type"]:
        case "record":
            return _struct(schema, known, path)
        case "array":
            return ArrayType(_type(schema["items"], known, path))
        case "map":
            return MapType(StringType(), _type(schema["values"], known, path))
        case kind:
            return _type(kind, known, path)
