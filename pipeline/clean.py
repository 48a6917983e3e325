"""From records to messages: JSON with an explicit schema. What is none is kept apart with the reason, never dropped.

Every row keeps log, partition and offset, so that whatever becomes of it can be traced to one record.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

MESSAGE_SCHEMA = "device string, seq bigint, ts timestamp, temperature double, humidity double"
"""A message of the telemetry that `make demo` sends: {"device": "device-0001", "seq": 7, "ts":
"2026-01-01T00:00:07Z", …}."""

_MALFORMED = "_malformed"


def parse(records: DataFrame, schema: str = MESSAGE_SCHEMA) -> DataFrame:
    """Records of a log, as `format("timestone")` gives them, as messages.

    Columns: log, partition, offset, received_at (when the log got it), topic, value (the raw bytes), the fields of
    `schema`, which has to have `device` and `ts`, and `problem`: null for a good message, else why it is none.
    """
    # A schema is explicit because an inferred one changes with the data that happens to be there.
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _MALFORMED}
    message = f.from_json(f.col("value").cast("string"), f"{schema}, {_MALFORMED} string", options)
    parsed = records.select(
        "log",
        "partition",
        "offset",
        f.col("timestamp").alias("received_at"),
        "topic",
        "value",
        message.alias("message"),
    )
    return parsed.select(
        "log",
        "partition",
        "offset",
        "received_at",
        "topic",
        "value",
        "message.*",
        _problem().alias("problem"),
    ).drop(_MALFORMED)


def good(messages: DataFrame) -> DataFrame:
    """The messages without a problem; the column is gone."""
    return messages.where(f.col("problem").isNull()).drop("problem")


def rejected(messages: DataFrame) -> DataFrame:
    """What is no message: where it came from, its bytes and the reason."""
    columns = ("log", "partition", "offset", "received_at", "topic", "value", "problem")
    return messages.where(f.col("problem").isNotNull()).select(*columns)


def _problem() -> Column:
    message = f.col("message")
    return (
        f.when(message.isNull() | message[_MALFORMED].isNotNull(), "not the JSON that was expected")
        .when(message["device"].isNull(), "no device")
        .when(message["ts"].isNull(), "no time")
    )
