"""Aggregation of messages in windows of event time: the time in the message, not that of its arrival."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from .config import MessageConfig


def averages(messages: DataFrame, minutes: int, message: MessageConfig | None = None) -> DataFrame:
    """Return one row for each device and window of `minutes`: device, start (of the window), messages (their number),
    mean, min and max of every measurement, minutes. On a stream of your own, set a watermark on the time first: it
    decides when a window is over."""
    message = message or MessageConfig()
    window = f.window(message.time, f"{minutes} minutes")
    measured = [
        summary(name).alias(f"{name}_{suffix}")
        for name in message.measurements
        for suffix, summary in (("mean", f.avg), ("min", f.min), ("max", f.max))
    ]
    grouped = messages.groupBy(message.device, window).agg(f.count("*").alias("messages"), *measured)
    columns = [f"{name}_{suffix}" for name in message.measurements for suffix in ("mean", "min", "max")]
    return grouped.select(
        message.device,
        f.col("window.start").alias("start"),
        "messages",
        *columns,
        f.lit(minutes).alias("minutes"),
    )


def all_averages(messages: Sequence[tuple[int, DataFrame]], message: MessageConfig) -> DataFrame:
    """Return the windows of several lengths in one frame. messages: pairs of a length and its messages."""
    parts = [averages(frame, minutes, message) for minutes, frame in messages]
    return reduce(DataFrame.unionByName, parts)
