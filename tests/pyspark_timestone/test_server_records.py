"""The logs of a server about itself, as Spark reads them."""

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, expr, from_json

import timestone
from timestone.metrics.metric import metric
from timestone.metrics.records import (
    EVENT_DDL,
    EVENTS_LOG,
    METRICS_LOG,
    SAMPLE_DDL,
    encode_event,
    encode_sample,
    sample_of,
)


def test_spark_reads_samples_and_events_by_the_name_of_their_log_only(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "data"
    with timestone.open(path) as store:
        store.log("telemetry").append(b"x")
        for number in range(3):
            metrics = [metric("publishes", "counter", "Publishes.", number * 10)]
            sample = sample_of(metrics, time_us=number, started_us=0, node="n", interval_ms=100)
            store.log(METRICS_LOG).append(encode_sample(sample))
        for client in ("a", "b"):
            facts = {"client": client, "counts": {"publishes_received": 10}, "connections": 1}
            store.log(EVENTS_LOG).append(encode_event("disconnected", facts, time_us=1, node="n"))
    source = spark.read.format("timestone").option("path", str(path))
    assert [row.log for row in source.load().select("log").collect()] == ["telemetry"]
    assert source.option("subscribePattern", ".*").load().count() == 1
    source = spark.read.format("timestone").option("path", str(path))
    samples = source.option("subscribe", METRICS_LOG).load()
    parsed = samples.select(from_json(col("value").cast("string"), SAMPLE_DDL).alias("sample"))
    assert parsed.selectExpr("max(sample.values['publishes_total'])").first() == (20.0,)
    events = source.option("subscribe", EVENTS_LOG).load()
    flat = events.select(from_json(col("value").cast("string"), EVENT_DDL).alias("event")).select("event.*")
    ended = flat.where("event = 'disconnected'")
    sums = ended.groupBy("client").agg(expr("sum(counts['publishes_received'])"), expr("sum(connections)"))
    assert sorted(sums.collect()) == [("a", 10, 1), ("b", 10, 1)]
