"""Payloads as typed columns: which format, which schema, and what becomes of a payload that is not of it.

What belongs here: the options, the seam between the source and the formats, and the four ways with bad records. Each
format has a module of its own that is imported when it is asked for; it turns an Arrow array of payloads into a
struct array, and says which of them it could not."""

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
from pyspark_timestone.options.option_text import OptionText

OPTIONS = ("payload", "payloadSchema", "payloadMessage", "badRecords", "dlqPath")
COLUMN, ERROR_COLUMN = "payload", "payload_error"
POLICIES = ("fail", "null", "column", "dlq")

_MODULES = {
    "json": "pyspark_timestone.payload.json",
    "avro": "pyspark_timestone.payload.avro",
    "protobuf": "pyspark_timestone.payload.protobuf",
    "msgpack": "pyspark_timestone.payload.msgpack",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadOptions:
    """What the user said about payloads, checked as far as text can be."""

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
        """The columns that decoding adds."""
        return (COLUMN, ERROR_COLUMN) if self.bad_records == "column" else (COLUMN,)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Payloads as a struct array; what could not be decoded is null there, and has a reason."""

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
    """What the module of a format offers."""

    def spark_type(self, options: PayloadOptions) -> StructType | str:
        """The type of the column: the fields of a struct, as types or in Spark's DDL. Raises InvalidOption."""

    def payload_format(self, options: PayloadOptions, type: pa.StructType) -> PayloadFormat:
        """The decoder into an Arrow type. Raises InvalidOption."""


def payload_options(texts: OptionText) -> PayloadOptions | None:
    """What is to be done with payloads; None for nothing. Raises InvalidOption."""
    if "payload" not in texts:
        for name in OPTIONS:
            if name in texts:
                raise InvalidOption(f"{name} means nothing without payload: {', '.join(_MODULES)}")
        return None
    form = texts.one_of("payload", {name: name for name in _MODULES}, default="")
    if not texts.get("payloadSchema", "").strip():
        raise InvalidOption(f"payload={form} needs payloadSchema")
    if form == "protobuf" and not texts.get("payloadMessage"):
        raise InvalidOption("payload=protobuf needs payloadMessage, the full name of the message")
    bad_records = texts.one_of("badRecords", {name: name for name in POLICIES}, default="fail")
    if ("dlqPath" in texts) != (bad_records == "dlq"):
        raise InvalidOption("badRecords=dlq and dlqPath, the folder for what is bad, belong together")
    return PayloadOptions(
        format=form,
        schema=texts["payloadSchema"].strip(),
        message=texts.get("payloadMessage", ""),
        bad_records=bad_records,
        dead_letters=texts.folder("dlqPath") if "dlqPath" in texts else None,
    )


def payload_module(options: PayloadOptions) -> PayloadModule:
    """The module of the format. Raises MissingRequirement when its library is not installed."""
    try:
        module: PayloadModule = importlib.import_module(_MODULES[options.format])
    except ModuleNotFoundError as error:
        raise MissingRequirement(
            f"payload={options.format} needs the module {error.name!r}: pip install 'timestone[payload]'"
        ) from error
    return module


_DECODED = (
    BinaryType, BooleanType, DateType, DecimalType, NumericType, StringType, TimestampNTZType, TimestampType,
)  # fmt: skip
"""What payloads are decoded into, alone and in arrays, maps and structs."""


def check_type(kind: DataType, name: str = COLUMN) -> None:
    """Raise InvalidOption for a type that nothing is decoded into, and when a field may not be null: any payload may
    lack it."""
    if isinstance(kind, StructType):
        if not kind.fields and name == COLUMN:
            raise InvalidOption("payloadSchema has no fields")
        for field in kind.fields:
            inside = f"{name}.{field.name}"
            if kind.names.count(field.name) > 1:
                # Arrow's error for that, in the middle of a task, names no field.
                raise InvalidOption(f"payloadSchema: {inside} is there twice")
            if not field.nullable:
                raise InvalidOption(
                    f"payloadSchema: {inside} is NOT NULL, but a payload may lack it; filter in the query"
                )
            check_type(field.dataType, inside)
    elif isinstance(kind, ArrayType):
        check_type(kind.elementType, name)
    elif isinstance(kind, MapType):
        check_type(kind.keyType, name)
        check_type(kind.valueType, name)
    elif not isinstance(kind, _DECODED):
        raise InvalidOption(
            f"payloadSchema: {name} is {kind.simpleString()}, which no payload is decoded into; give another type,"
            " and cast in the query"
        )
