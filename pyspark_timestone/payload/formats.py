"""The contract between the source and the payload formats: options, decoded values, and the types that are possible.

Each format has a module of its own, imported when it is asked for. It turns an Arrow array of payloads into a struct
array, with a reason for each payload that it cannot decode."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_timestone.errors import InvalidOption, MissingRequirement

COLUMN, ERROR_COLUMN = "payload", "payload_error"
POLICIES = ("fail", "null", "column", "dlq")

_MODULES = {
    "json": "pyspark_timestone.payload.json",
    "avro": "pyspark_timestone.payload.avro",
    "protobuf": "pyspark_timestone.payload.protobuf",
    "msgpack": "pyspark_timestone.payload.msgpack",
}
FORMATS = tuple(_MODULES)


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadOptions:
    """Options of the user about payloads, checked as far as text can be."""

    format: str
    schema: str
    """Of json and msgpack: Spark's DDL, or the JSON of a StructType. Of avro: its JSON. Of protobuf: the file of a
    descriptor set."""
    message: str
    """Of protobuf: the full name of the message."""
    bad_records: str
    """One of POLICIES."""
    dead_letters: Path | None

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that decoding adds."""
        return (COLUMN, ERROR_COLUMN) if self.bad_records == "column" else (COLUMN,)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Payloads as a struct array; a payload that could not be decoded is null there, and has a reason."""

    values: pa.StructArray
    bad: Mapping[int, str]


def spread(made: pa.StructArray, bad: Mapping[int, str], count: int) -> Decoded:
    """Decoded rows at their places among `count`: null where a payload is bad, the others in order."""
    if not bad:
        return Decoded(made, {})
    missing = np.zeros(count, dtype=bool)
    missing[list(bad)] = True
    return Decoded(made.take(pa.array(np.cumsum(~missing) - 1, mask=missing)), dict(sorted(bad.items())))


class PayloadFormat(Protocol):
    """Decodes payloads of one format and schema. Raises nothing for a payload that is not of it."""

    def decode(self, values: pa.BinaryArray) -> Decoded: ...


class PayloadModule(Protocol):
    """Interface of the module of a format."""

    def spark_type(self, options: PayloadOptions) -> StructType | str:
        """Return the type of the column: the fields of a struct, as types or in Spark's DDL. Raises InvalidOption."""

    def payload_format(self, options: PayloadOptions, type: pa.StructType) -> PayloadFormat:
        """Return the decoder into an Arrow type. Raises InvalidOption."""


def payload_module(options: PayloadOptions) -> PayloadModule:
    """Return the module of the format. Raises MissingRequirement if its library is not installed."""
    try:
        module: PayloadModule = importlib.import_module(_MODULES[options.format])
    except ModuleNotFoundError as error:
        raise MissingRequirement(
            f"payload={options.format} needs the module {error.name!r}: pip install '.[payload]' in a clone"
        ) from error
    return module


_DECODED = (
    BinaryType, BooleanType, DateType, DecimalType, NumericType, StringType, TimestampNTZType, TimestampType,
)  # fmt: skip
"""Types that payloads are decoded into, alone and in arrays, maps and structs."""


def check_type(kind: DataType, name: str = COLUMN) -> None:
    """Raise InvalidOption for a type that nothing is decoded into, and when a field may not be null: any payload may
    lack it."""
    if isinstance(kind, StructType):
        if not kind.fields and name == COLUMN:
            raise InvalidOption("invalid payloadSchema: expected at least one field, got none")
        for field in kind.fields:
            inside = f"{name}.{field.name}"
            if kind.names.count(field.name) > 1:
                # Arrow's error for that, in the middle of a task, names no field.
                raise InvalidOption(f"invalid payloadSchema: expected each field once, got {inside} twice")
            if not field.nullable:
                raise InvalidOption(
                    f"invalid payloadSchema: expected fields that may be null, got {inside} NOT NULL, which a payload"
                    " may lack; filter in the query"
                )
            check_type(field.dataType, inside)
    elif isinstance(kind, ArrayType):
        check_type(kind.elementType, name)
    elif isinstance(kind, MapType):
        check_type(kind.keyType, name)
        check_type(kind.valueType, name)
    elif not isinstance(kind, _DECODED):
        raise InvalidOption(
            f"invalid payloadSchema: expected a type that payloads are decoded into for {name}, got"
            f" {kind.simpleString()}; give another type, and cast in the query"
        )
