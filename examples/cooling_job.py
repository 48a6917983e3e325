"""Actions back to devices: a query that tells every device that is too hot to cool, over MQTT, once a report.

    python -m examples.cooling_job DATA CHECKPOINT

Reads `devices/<id>/telemetry` from the log of a running server, and writes `devices/<id>/cmd` into it. The server
sends that to its subscribers. What a batch has sent is not sent again after any crash: also not by a server that
was killed, to devices that subscribe at QoS 2. Each report gets its command; a device that reports at QoS 1 may send
one twice.
"""

import argparse
import signal
import threading
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_timestone.session import spark_session

LOG = "mqtt"
"""Where the server puts what no other log was configured for; also where clients get their messages from."""
LIMIT_C = 30.0


def commands(reports: DataFrame) -> DataFrame:
    """Records of the log -> one command for each report of a temperature above LIMIT_C."""
    report = f.from_json(f.col("value").cast("string"), "seq long, temperature double")
    return (
        reports.select(f.split("topic", "/")[1].alias("device"), report.alias("report"))
        .where(f.col("report.temperature") > LIMIT_C)
        .select(
            f.concat(f.lit("devices/"), "device", f.lit("/cmd")).alias("topic"),
            f.to_json(f.struct(f.lit("cool").alias("do"), "report.seq")).alias("value"),
        )
    )


def start(spark: SparkSession, store: Path, checkpoint: Path, *, once: bool = False) -> StreamingQuery:
    """Start the query, from the first report on; with `once` it ends when it has read what is there now."""
    reports = (
        spark.readStream.format("timestone")
        .option("subscribe", LOG)
        # Without this the query would read its own commands, too.
        .option("topics", "devices/+/telemetry")
        .option("startingOffsets", "earliest")
        .load(str(store))
    )
    writer = commands(reports).writeStream.format("timestone").option("log", LOG).option("qos", 2)
    if once:
        writer = writer.trigger(availableNow=True)
    return writer.option("checkpointLocation", str(checkpoint)).start(str(store))


def run(query: StreamingQuery) -> None:
    """Wait until the query fails, which raises, or Ctrl-C, which ends it. Spark's own handler would print two pages of
    where Python and Java were."""
    interrupted = threading.Event()
    before = signal.signal(signal.SIGINT, lambda number, frame: interrupted.set())
    try:
        while not interrupted.is_set() and not query.awaitTermination(1):
            pass
        query.stop()
    finally:
        signal.signal(signal.SIGINT, before)


def main() -> None:
    """Run until interrupted."""
    parser = argparse.ArgumentParser(
        prog="cooling_job", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("data", type=Path, help="the store of the server")
    parser.add_argument("checkpoint", type=Path, help="where Spark notes how far it is")
    arguments = parser.parse_args()
    with spark_session("cooling") as spark:
        run(start(spark, arguments.data, arguments.checkpoint))


if __name__ == "__main__":
    main()
