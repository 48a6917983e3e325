"""The last known state of each device: its newest message. Newer by the time in the message, then by its sequence."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from .config import MessageConfig


def newest(messages: DataFrame, message: MessageConfig | None = None) -> DataFrame:
    """One row a device. Of messages with the same time and sequence the one that arrived last.

    Merging is the same once more: newest(newest(a) + newest(b)) = newest(a + b).
    """
    message = message or MessageConfig()
    age = f.struct(message.time, message.sequence, "received_at", "log", "partition", "offset")
    row = f.struct(*messages.columns)
    return (
        messages.groupBy(message.device)
        .agg(f.max_by(row, age).alias("newest"))
        .select(*[f.col("newest")[name].alias(name) for name in messages.columns])
    )
