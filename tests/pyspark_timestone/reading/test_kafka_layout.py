"""The columns of Spark's Kafka source: a job written for it runs with another format name and a path."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

import timestone
from pyspark_timestone.errors import InvalidOption, SchemaMismatch
from pyspark_timestone.offsets import LogPartition, OffsetRange
from pyspark_timestone.options.columns import KAFKA_NAMES, arrow_schema, source_schema
from pyspark_timestone.options.read_options import read_options, schema_option
from pyspark_timestone.reading.kafka_layout import kafka_columns
from pyspark_timestone.reading.scan import ScanTask, scan
from tests.support.stores import LOG, fill
from timestone import Header, HeaderKind, WriteBatch
from timestone.record import encode_headers

KAFKA_SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
    "timestampType:int,headers:array<struct<key:string,value:binary>>>"
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A record from MQTT, and one with a key and a header."""
    block = encode_headers([Header(HeaderKind.USER, "h", b"1"), Header(HeaderKind.KEY, "", b"k1")])
    with timestone.open(tmp_path) as opened:
        log = opened.log(LOG)
        log.append(b"from mqtt", topic="plant/1")
        log.append_batch(WriteBatch([block + b"keyed"], [timestone.NO_TOPIC], header_lengths=[len(block)]))
    return tmp_path


def test_the_schema_is_that_of_kafka_s_source() -> None:
    with_headers = schema_option({"path": "x", "layout": "kafka", "includeHeaders": "true"})
    assert isinstance(with_headers, StructType)
    assert with_headers.simpleString() == KAFKA_SCHEMA
    without = schema_option({"path": "x", "layout": "Kafka"})
    assert isinstance(without, StructType)
    assert without.names == list(KAFKA_NAMES[:-1]), "headers come when they are asked for, as with Kafka"


def test_what_does_not_fit_is_refused() -> None:
    chosen = read_options({"path": "x", "layout": "kafka"}, streaming=False)
    chosen.check_schema(source_schema(["key", "timestampType"]))
    with pytest.raises(SchemaMismatch, match=r"expected some of key, value, topic, .* got 'log'"):
        chosen.check_schema(source_schema(["log"]))
    with pytest.raises(SchemaMismatch, match=r"^invalid schema: expected some of log, .* got 'key'"):
        read_options({"path": "x"}, streaming=False).check_schema(source_schema(["key"]))
    for given in (
        {"layout": "pulsar"},
        {"layout": "kafka", "payload": "json", "payloadSchema": "a int"},
        {"layout": "kafka", "columns": "flags"},
    ):
        with pytest.raises(InvalidOption):
            schema_option({"path": "x", **given})


def test_a_job_that_still_names_a_broker_has_kafka_s_columns(caplog: pytest.LogCaptureFixture) -> None:
    given = {"path": "x", "kafka.bootstrap.servers": "b:9092"}
    assert read_options(given, streaming=True).columns == KAFKA_NAMES[:-1]
    assert caplog.messages == [
        "there is no broker to configure, so these options change nothing but the layout, which is kafka: "
        "kafka.bootstrap.servers"
    ]
    assert not read_options({**given, "layout": "timestone"}, streaming=True).kafka_layout
    decoding = {**given, "payload": "json", "payloadSchema": "a int"}
    assert "payload" in read_options(decoding, streaming=True).columns
    assert all(told.endswith("change nothing: kafka.bootstrap.servers") for told in caplog.messages[1:])


def test_key_topic_and_type_are_what_kafka_calls_so(store: Path) -> None:
    options = read_options({"path": str(store), "layout": "kafka", "includeHeaders": "true"}, streaming=False)
    with timestone.view(store) as view:
        task = ScanTask(OffsetRange(LogPartition(LOG, 0), 0, 2), view.log(LOG).id)
        assert list(kafka_columns(view.log(LOG).read(0), ["value", "timestampType"])) == ["timestampType"]
    schema = arrow_schema(source_schema(KAFKA_NAMES))
    rows = (
        pa.Table.from_batches(scan(task, options, schema)).drop_columns(["timestamp", "headers"]).to_pylist()
    )
    assert rows == [
        {"key": None, "value": b"from mqtt", "topic": LOG, "partition": 0, "offset": 0, "timestampType": 1},
        {"key": b"k1", "value": b"keyed", "topic": LOG, "partition": 0, "offset": 1, "timestampType": 1},
    ]


@pytest.mark.spark
def test_a_job_of_kafka_s_source_goes_on_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    """As such jobs are written: only the format's name is another one and the path is new."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    fill(tmp_path / "data", 3, log="alarms")
    with timestone.open(tmp_path / "data") as opened:
        messages = [
            json.dumps(
                {"device": f"d{n % 2}", "ts": (start + timedelta(seconds=n)).isoformat(), "c": n}
            ).encode()
            for n in range(1200)
        ]
        opened.log("plant-a").append_many(messages[:600])
        opened.log("plant-b").append_many(messages[600:])
    table, checkpoint = str(tmp_path / "table"), str(tmp_path / "checkpoint")
    broker = {"kafka.bootstrap.servers": "b1:9092,b2:9092", "kafka.security.protocol": "SASL_SSL"}

    df = (
        spark.readStream.format("timestone")
        .options(**broker, path=str(tmp_path / "data"))
        .option("subscribePattern", "plant-.*")
        .option("startingOffsets", '{"plant-a":{"0":100},"plant-b":{"0":-2}}')
        .option("maxOffsetsPerTrigger", 5000)
        .option("failOnDataLoss", "false")
        .option("includeHeaders", "true")
        .load()
    )
    fields = "device string, ts timestamp, c double"
    parsed = df.select(
        f.col("key").cast("string"), "topic", "partition", "offset", "timestamp", "timestampType", "headers",
        f.from_json(f.col("value").cast("string"), fields).alias("m"),
    )  # fmt: skip
    windows = (
        parsed.select("topic", "m.*")
        .withWatermark("ts", "1 minute")
        .groupBy(f.window("ts", "5 minutes"), "device")
        .agg(f.count("*").alias("n"), f.avg("c").alias("mean"))
    )

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"{table}/batch={number}")

    query = windows.writeStream.outputMode("append").foreachBatch(write)
    query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    rows = spark.read.parquet(table).orderBy("window", "device").select("device", "n", "mean").collect()
    # The window from the fifteenth minute on is still open; the first lacks the hundred records before the start.
    expected = [
        (f"d{odd}", len(numbers), sum(numbers) / len(numbers))
        for first, last in ((100, 300), (300, 600), (600, 900))
        for odd in (0, 1)
        for numbers in [range(first + odd, last, 2)]
    ]
    assert [tuple(row) for row in rows] == expected

    batch = spark.read.format("timestone").options(layout="kafka", path=str(tmp_path / "data"))
    chosen = (
        batch.option("subscribe", "plant-a,plant-b")
        .option("startingOffsets", '{"plant-a":{"0":-2},"plant-b":{"0":590}}')
        .option("endingOffsets", '{"plant-a":{"0":10},"plant-b":{"0":-1}}')
        .load()
    )
    counted = chosen.groupBy("topic").agg(f.min("offset"), f.max("offset")).orderBy("topic").collect()
    assert [tuple(row) for row in counted] == [("plant-a", 0, 9), ("plant-b", 590, 599)]
    both = chosen.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING) v", "timestampType").where(
        "v like '%1199%'"
    )
    assert [tuple(row) for row in both.collect()] == [(None, messages[1199].decode(), 1)]
