"""Messages in windows of event time: the time in the message, not that of its arrival."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f


def minute_averages(messages: DataFrame) -> DataFrame:
    """One row a device and minute: device, minute (its beginning), messages (how many), temperature_mean,
    temperature_max, humidity_mean.

    On a stream, set a watermark on `ts` first: it says when a minute is over.
    """
    minute = f.window("ts", "1 minute")
    return (
        messages.groupBy("device", minute)
        .agg(
            f.count("*").alias("messages"),
            f.avg("temperature").alias("temperature_mean"),
            f.max("temperature").alias("temperature_max"),
            f.avg("humidity").alias("humidity_mean"),
        )
        .select(
            "device",
            f.col("window.start").alias("minute"),
            "messages",
            "temperature_mean",
            "temperature_max",
            "humidity_mean",
        )
    )
