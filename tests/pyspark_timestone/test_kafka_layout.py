"""The columns of Spark's Kafka source: a job written for it goes on with another format name and a path."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import timestone
from pyspark_timestone.arrow import arrow_schema
from pyspark_timestone.columns import KAFKA_NAMES, source_schema
from pyspark_timestone.errors import InvalidOption, SchemaMismatch
from pyspark_timestone.kafka_layout import kafka_columns
from pyspark_timestone.offsets import LogPartition, OffsetRange
from pyspark_timestone.options import read_options, schema_option
from pyspark_timestone.scan import ScanTask, scan
from tests.support.stores import LOG
from timestone import Draft, Header, HeaderKind
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
        log.append_draft(Draft([block + b"keyed"], [timestone.NO_TOPIC], header_lengths=[len(block)]))
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
    with pytest.raises(SchemaMismatch, match="no column 'log'; it has key, value, topic"):
        chosen.check_schema(source_schema(["log"]))
    with pytest.raises(SchemaMismatch, match="no column 'key'"):
        read_options({"path": "x"}, streaming=False).check_schema(source_schema(["key"]))
    for given in (
        {"layout": "pulsar"},
        {"layout": "kafka", "payload": "json", "payloadSchema": "a int"},
        {"layout": "kafka", "columns": "flags"},
    ):
        with pytest.raises(InvalidOption):
            schema_option({"path": "x", **given})


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
def test_a_job_of_kafka_s_source_goes_on_as_it_is(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    """Word for word from the guide of Spark's Kafka source, but for format and path."""
    df = (
        spark.readStream.format("timestone")
        .option("path", str(store))
        .option("layout", "kafka")
        .option("subscribe", LOG)
        .option("startingOffsets", f'{{"{LOG}":{{"0":0}}}}')
        .option("maxOffsetsPerTrigger", "1")
        .option("failOnDataLoss", "false")
        .load()
    )
    chosen = df.selectExpr(
        "CAST(key AS STRING)", "CAST(value AS STRING)", "topic", "partition", "offset", "timestampType"
    )
    query = chosen.writeStream.format("memory").queryName("kafka_job").trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    rows = spark.sql("SELECT * FROM kafka_job ORDER BY offset").collect()
    assert [tuple(row) for row in rows] == [(None, "from mqtt", LOG, 0, 0, 1), ("k1", "keyed", LOG, 0, 1, 1)]
