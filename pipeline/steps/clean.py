"""Conversion of records to messages: JSON with an explicit schema, each message once. Records that are not valid
messages are kept separately with the reason, never dropped.

Every row keeps log, partition and offset, so that all data derived from it can be traced to one record. The result
depends on the record and on records that arrived shortly before it, never on batches or local clocks: the same log
gives the same tables, regardless of how often and in which pieces it is read."""

import operator
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType

from ..config import MessageConfig
from ..delta.data_file import TABLE
from ..delta.tables import Tables

DUPLICATE = "a repetition"
"""Value of `problem` for a repeated message."""
SEEN_AT = "seen at"
"""Column of `without_repetitions`. A blank: no field of a message can have this name."""
_BEFORE = "seen before at"
_MALFORMED = "is malformed"
_OLDEST = datetime(1900, 1, 1, tzinfo=UTC)
_NEWEST = datetime(9999, 12, 31, tzinfo=UTC)
_ARRIVAL = ("received_at", "log", "partition", "offset")


def parse(
    records: DataFrame, message: MessageConfig | None = None, *, keep: Mapping[str, str] | None = None
) -> DataFrame:
    """Parse records of a log, as returned by `format("timestone")`, into messages.

    Columns: log, partition, offset, received_at (append time), topic, value (the raw bytes), the fields of `message`,
    ingest_date (the day of received_at), and `problem`: null for a valid message, else the reason. keep: further
    columns of `records`, and their names in the result."""
    message, keep = message or MessageConfig(), keep or {}
    # Explicit, because an inferred schema changes with the data.
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _MALFORMED,
        # JSON has neither NaN nor Infinity, which Spark would also accept as texts.
        "allowNonNumericNumbers": "false",
    }
    parsed = f.from_json(f.col("value").cast("string"), f"{message.ddl}, `{_MALFORMED}` string", options)
    rows = records.select(
        "log",
        "partition",
        "offset",
        f.col("timestamp").alias("received_at"),
        "topic",
        "value",
        parsed.alias("message"),
        *[f.col(column).alias(name) for column, name in keep.items()],
    )
    fields = [
        (_readable(name) if name == message.time else f.col("message")[name]).alias(name)
        for name in message.fields
    ]
    return rows.select(
        *_ARRIVAL,
        "topic",
        "value",
        *fields,
        f.to_date("received_at").alias("ingest_date"),
        _problem(message).alias("problem"),
        *keep.values(),
    )


def good(messages: DataFrame) -> DataFrame:
    """Return the messages without a problem, and without that column."""
    return messages.where(f.col("problem").isNull()).drop("problem")


def rejected(messages: DataFrame) -> DataFrame:
    """Return the invalid and repeated messages: their origin, bytes and reason."""
    return messages.where(f.col("problem").isNotNull())


def with_table(messages: DataFrame, tables: Tables) -> DataFrame:
    """Return all `messages` with the column TABLE: the table of each, by its problem."""
    problem = f.col("problem")
    name = (
        f.when(problem.isNull(), tables.clean.name)
        .when(problem == DUPLICATE, tables.duplicates.name)
        .otherwise(tables.dead_letters.name)
    )
    return messages.withColumn(TABLE, name)


def without_repetitions(
    messages: DataFrame, seen: DataFrame, message: MessageConfig, within_s: int
) -> DataFrame:
    """Return `messages` with the problem DUPLICATE where a message of the same device and sequence arrived at most
    `within_s` before, in `messages` or in `seen`.

    seen: the two keys and SEEN_AT, an array of arrival times, one row a key. A message without device or sequence is
    never a repetition."""
    device, sequence = (f.col(name) for name in message.keys)
    countable = f.col("problem").isNull() & sequence.isNotNull()
    # Messages without a key are spread by their offsets; otherwise all of them would be one group.
    alone = f.when(~countable, f.col("offset"))
    group = Window.partitionBy(device, sequence, alone).orderBy(*_ARRIVAL)
    moment = f.unix_micros("received_at")

    def near(other: Column) -> Column:
        return f.abs(moment - f.unix_micros(other)) <= within_s * 1_000_000

    before = f.lag("received_at").over(group)
    found = messages.join(seen, list(message.keys), "left").withColumn(_BEFORE, before)
    repeats = countable & (
        f.coalesce(near(f.col(_BEFORE)), f.lit(False)) | f.coalesce(f.exists(SEEN_AT, near), f.lit(False))
    )
    problem = f.when(repeats, f.lit(DUPLICATE)).otherwise(f.col("problem"))
    return found.withColumn("problem", problem).select(*messages.columns)


def _readable(time: str) -> Column:
    """Replace a time outside the calendar, which would keep programs from reading the table of dead letters; its text
    is in the record's bytes."""
    moment = f.col("message")[time]
    return f.when(moment.between(f.lit(_OLDEST), f.lit(_NEWEST)), moment)


def _problem(message: MessageConfig) -> Column:
    parsed = f.col("message")
    malformed = parsed.isNull() | parsed[_MALFORMED].isNotNull()
    infinite = _infinite(parsed, StructType.fromDDL(message.ddl))
    if infinite is not None:
        malformed |= infinite
    latest = f.col("received_at") + f.make_interval(secs=f.lit(message.future_s))
    return (
        f.when(malformed, "not the JSON that was expected")
        .when(parsed[message.device].isNull(), "no device")
        .when(parsed[message.time].isNull(), "no time")
        .when(parsed[message.time] > latest, "a time in the future")
        # Spark's arithmetic overflows, and fails the whole query, on times of broken clocks.
        .when(parsed[message.time] < f.lit(_OLDEST), "a time before 1900")
    )


def _infinite(value: Column, kind: DataType) -> Column | None:
    """Return whether a value contains a number that its type cannot hold, of which Spark makes infinity; None for a
    type without such numbers."""
    if isinstance(kind, DoubleType | FloatType):
        return f.abs(value) == f.lit(float("inf"))
    if isinstance(kind, StructType):
        found = [one for field in kind if (one := _infinite(value[field.name], field.dataType)) is not None]
        return reduce(operator.or_, found) if found else None
    if isinstance(kind, MapType):
        value, kind = f.map_values(value), ArrayType(kind.valueType)
    if isinstance(kind, ArrayType):
        element = kind.elementType
        if _infinite(f.lit(None), element) is None:
            return None

        def inside(one: Column) -> Column:
            found = _infinite(one, element)
            return f.lit(False) if found is None else f.coalesce(found, f.lit(False))

        return f.exists(value, inside)
    return None
