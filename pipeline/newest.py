"""Last known state of each device: its newest message, by the time in the message, then by its sequence."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from .config import MessageConfig


def newest(messages: DataFrame, message: MessageConfig | None = None) -> DataFrame:
    """Return one row a device. Of messages with the same time and sequence, the last to arrive. Merging applies it
    again: newest(newest(a) + newest(b)) = newest(a + b)."""
    message = message or MessageConfig()
    age = f.struct(message.time, message.sequence, "received_at", "log", "partition", "offset")
    row = f.struct(*messages.columns)
    return (
        messages.groupBy(message.device)
        .agg(f.max_by(row, age).alias("newest"))
        .select(*[f.col("newest")[name].alias(name) for name in messages.columns])
    )
