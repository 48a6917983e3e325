"""Payloads that are Protobuf messages. Needs the module google.protobuf, and a descriptor set as
`protoc --descriptor_set_out --include_imports` writes it.

Fields that the message tells apart from unset (those with presence) are null when unset; others have their default, as
the language guide has it. Enums are their names, `google.protobuf.Timestamp` is a timestamp."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
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

_TIMESTAMP = "google.protobuf.Timestamp"
_PLAIN: dict[int, DataType] = {
    FieldDescriptor.CPPTYPE_INT32: IntegerType(),
    FieldDescriptor.CPPTYPE_INT64: LongType(),
    FieldDescriptor.CPPTYPE_UINT32: LongType(),
    # Spark has no unsigned type: a number above 2^63 - 1 makes the record bad, never negative.
    FieldDescriptor.CPPTYPE_UINT64: LongType(),
    FieldDescriptor.CPPTYPE_DOUBLE: DoubleType(),
    FieldDescriptor.CPPTYPE_FLOAT: FloatType(),
    FieldDescriptor.CPPTYPE_BOOL: BooleanType(),
    FieldDescriptor.CPPTYPE_ENUM: StringType(),
}


def spark_type(options: PayloadOptions) -> StructType:
    """Return the fields of the message. Raises InvalidOption."""
    return _struct(_descriptor(options), ())


def payload_format(options: PayloadOptions, type: pa.StructType) -> RowPayload:
    """Return the decoder. Raises InvalidOption."""
    descriptor = _descriptor(options)
    message, read = GetMessageClass(descriptor), _reader(descriptor)

    def decode(value: bytes) -> Row:
        return read(message.FromString(value))

    return RowPayload(type, decode, (DecodeError, ValueError, OverflowError))


def _descriptor(options: PayloadOptions) -> Descriptor:
    try:
        described = FileDescriptorSet.FromString(Path(options.schema).read_bytes())
    except OSError as error:
        raise InvalidOption(
            f"invalid payloadSchema: expected a readable file, got {options.schema}: {error.strerror}"
        ) from None
    except DecodeError:
        raise InvalidOption(
            f"invalid payloadSchema: expected a descriptor set of protoc, got {options.schema}"
        ) from None
    pool = DescriptorPool()
    try:
        for file in described.file:
            pool.Add(file)
        return pool.FindMessageTypeByName(options.message)
    except (KeyError, TypeError) as error:
        raise InvalidOption(
            f"invalid payloadMessage: expected a message in {options.schema}, which also has all that it imports, got"
            f" {options.message!r}: {error}"
        ) from None


def _struct(message: Descriptor, path: tuple[str, ...]) -> StructType:
    if message.full_name in path:
        raise InvalidOption(
            f"invalid payloadMessage: expected a message that does not contain itself, got {message.full_name}"
        )
    inside = (*path, message.full_name)
    return StructType([StructField(field.name, _type(field, inside)) for field in message.fields])


def _type(field: FieldDescriptor, path: tuple[str, ...]) -> DataType:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return MapType(_type(entry["key"], path), _type(entry["value"], path))
    return ArrayType(_one(field, path)) if field.is_repeated else _one(field, path)


def _one(field: FieldDescriptor, path: tuple[str, ...]) -> DataType:
    if field.message_type is not None:
        return (
            TimestampType()
            if field.message_type.full_name == _TIMESTAMP
            else _struct(field.message_type, path)
        )
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return BinaryType() if field.type == FieldDescriptor.TYPE_BYTES else StringType()
    return _PLAIN[field.cpp_type]


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _reader(message: Descriptor) -> Callable[[Any], Row]:
    """Return a function from messages to rows; made once, so that no message asks its descriptor anything."""
    plan = [(field.name, field.has_presence, _value_reader(field)) for field in message.fields]

    def read(value: Any) -> Row:
        return {
            name: None if has_presence and not value.HasField(name) else take(getattr(value, name))
            for name, has_presence, take in plan
        }

    return read


def _value_reader(field: FieldDescriptor) -> Callable[[Any], Any]:
    if _is_map(field):
        item = _one_reader(field.message_type.fields_by_name["value"])
        return lambda entries: [(key, item(entries[key])) for key in entries]
    one = _one_reader(field)
    return (lambda values: [one(value) for value in values]) if field.is_repeated else one


def _one_reader(field: FieldDescriptor) -> Callable[[Any], Any]:
    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return lambda value: value.seconds * 1_000_000 + value.nanos // 1000
        return _reader(field.message_type)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, str(number))
    return lambda value: value
