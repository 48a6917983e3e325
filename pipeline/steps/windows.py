"""Aggregation of messages in windows of event time: the time in the message, not that of its arrival."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ..config import MessageConfig


def averages(messages: DataFrame, minutes: int, message: MessageConfig | None = None) -> DataFrame:
    """Return one row for each device and window of `minutes`: device, start (of the window), messages (their number),
    mean, min and max of every measurement, minutes. On a stream of your own, set a watermark on the time first: it
    decides when a window is over."""
    message = message or MessageConfig()
    window = f.window(message.time, f"{minutes} minutes")
    grouped = messages.groupBy(message.device, window).agg(*_summaries(message))
    start, length = f.col("window.start").alias("start"), f.lit(minutes).alias("minutes")
    return grouped.select(*_columns(message, start, length))


def all_averages(messages: Sequence[tuple[int, DataFrame]], message: MessageConfig) -> DataFrame:
    """Return the windows of several lengths in one frame. messages: pairs of a length and its messages.

    One aggregation for all lengths, so that its tasks have equal shares."""
    rows = [
        frame.select(
            message.device,
            f.window(message.time, f"{minutes} minutes")["start"].alias("start"),
            f.lit(minutes).alias("minutes"),
            *message.measurements,
        )
        for minutes, frame in messages
    ]
    grouped = reduce(DataFrame.unionByName, rows).groupBy(message.device, "start", "minutes")
    return grouped.agg(*_summaries(message)).select(*_columns(message, f.col("start"), f.col("minutes")))


def _summaries(message: MessageConfig) -> list[Column]:
    measured = [
        summary(name).alias(f"{name}_{suffix}")
        for name in message.measurements
        for suffix, summary in (("mean", f.avg), ("min", f.min), ("max", f.max))
    ]
    return [f.count("*").alias("messages"), *measured]


def _columns(message: MessageConfig, start: Column, minutes: Column) -> list[Column]:
    names = [f"{name}_{suffix}" for name in message.measurements for suffix in ("mean", "min", "max")]
    return [f.col(message.device), start, f.col("messages"), *map(f.col, names), minutes]
