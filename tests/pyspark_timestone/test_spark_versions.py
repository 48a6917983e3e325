"""The source on the Spark that is imported: `.ci/spark_versions` runs this file on each version that is supported."""

import json
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import timestone
from pyspark_timestone.jvm.requirements import ADMISSION_CONTROL_SPARK, spark_version
from tests.support.ports import reserved_port
from tests.support.spark import Batches, batch, stream
from tests.support.stores import LOG

pytestmark = pytest.mark.spark

HAS_LIMITS = spark_version() >= ADMISSION_CONTROL_SPARK


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    fill(path, 10)
    return path


def fill(store: Path, count: int) -> None:
    with timestone.open(store) as opened:
        log = opened.log(LOG)
        for number in range(log.end_offset, log.end_offset + count):
            headers = [("n", b"%d" % number)] if number % 2 else []
            log.append(json.dumps({"n": number}).encode(), topic=f"devices/{number % 3}", headers=headers)


def records(store: Path, log: str) -> list[tuple[bytes, str | None]]:
    with timestone.view(store) as view:
        return [(record.payload, record.topic) for record in view.log(log).reader()]


def test_batch_returns_every_record(spark: SparkSession, store: Path) -> None:
    assert spark.version == pyspark.__version__
    rows = batch(spark, store).orderBy("offset").collect()
    assert [(row["offset"], bytes(row["value"])) for row in rows] == [
        (number, b'{"n": %d}' % number) for number in range(10)
    ]
    assert [row["headers"] for row in rows[:2]] == [None, [("n", bytearray(b"1"))]]
    chosen = batch(spark, store, topics="devices/0", payload="json", payloadSchema="n int")
    assert sorted(row["payload"]["n"] for row in chosen.collect()) == [0, 3, 6, 9]


def test_scan_returns_columns_where_the_class_is_made_for_this_spark(
    spark: SparkSession, store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    batch(spark, store).explain()
    assert ("ColumnarToRow" in capfd.readouterr().out) == HAS_LIMITS


def test_stream_reads_each_record_once_when_it_is_started_again(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    batches, checkpoint = Batches(tmp_path / "batches"), tmp_path / "checkpoint"
    batches.drain(stream(spark, store), checkpoint)
    assert batches.offsets() == list(range(10))
    fill(store, 5)
    batches.drain(stream(spark, store), checkpoint)
    assert batches.offsets() == list(range(15))
    # As if the driver had died before Spark noted the last batch.
    for path in (checkpoint / "commits").glob(f"*{len(batches.all()) - 1}*"):
        path.unlink()
    batches.drain(stream(spark, store), checkpoint)
    assert batches.offsets() == list(range(15))


def test_stream_keeps_its_start_when_the_first_batch_is_run_again(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    """Started at "latest", killed in batch 0 and started again after more records have come."""
    batches, checkpoint = Batches(tmp_path / "batches"), tmp_path / "checkpoint"
    query = batches.start(stream(spark, store, startingOffsets="latest"), checkpoint)
    try:
        query.processAllAvailable()
        fill(store, 3)
        query.processAllAvailable()
    finally:
        query.stop()
    assert batches.offsets() == [10, 11, 12]
    later = [
        path for path in (checkpoint / "offsets").iterdir() if path.name.strip(".").partition(".")[0] != "0"
    ]
    for path in [*later, *(checkpoint / "commits").iterdir(), *batches.directory.iterdir()]:
        path.unlink()
    fill(store, 3)
    batches.drain(stream(spark, store, startingOffsets="latest"), checkpoint)
    batches.drain(stream(spark, store, startingOffsets="latest"), checkpoint)
    assert batches.offsets() == list(range(10, 16))


def test_stream_keeps_its_limits_or_refuses_them(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    batches = Batches(tmp_path / "batches")
    frame = stream(spark, store, maxOffsetsPerTrigger=4)
    if HAS_LIMITS:
        batches.drain(frame, tmp_path / "checkpoint")
        assert batches.sizes() == [4, 4, 2]
    else:
        with pytest.raises(PySparkException, match=r"maxOffsetsPerTrigger needs Spark 4\.2 or newer"):
            batches.drain(frame, tmp_path / "checkpoint")


@pytest.mark.parametrize("schema", [None, "offset bigint"], ids=["load", "first batch"])
def test_wrong_option_of_a_stream_is_named(
    spark: SparkSession, store: Path, tmp_path: Path, schema: str | None
) -> None:
    reader = spark.readStream.format("timestone").option("startingOffsets", "sometime")
    if schema is not None:  # Spark then does not ask the source for its schema.
        reader = reader.schema(schema)
    batches = Batches(tmp_path / "batches")
    with pytest.raises(PySparkException, match="invalid startingOffsets") as refused:
        batches.drain(reader.load(str(store)), tmp_path / "checkpoint")
    assert ("Streaming Query" in str(refused.value)) == (schema is not None)
    assert "UnboundLocalError" not in str(refused.value)
    assert "Traceback" not in str(refused.value)


def test_sink_appends_each_row_once(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    rows = batch(spark, store).select("value", "topic", "headers").coalesce(1).sortWithinPartitions("topic")
    rows.write.format("timestone").option("log", "copy").mode("append").save(str(store))
    assert sorted(records(store, "copy")) == sorted(records(store, LOG))
    with timestone.view(store) as view:
        assert sum(len(record.headers) for record in view.log("copy").reader()) == 5

    checkpoint = tmp_path / "checkpoint"
    for _ in range(2):
        # The second time as if the driver had died before Spark noted the last batch.
        source = stream(spark, store, subscribe=LOG).select("value", "topic", "headers")
        sink = source.writeStream.format("timestone").option("log", "streamed")
        sink = sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        sink.start(str(store)).awaitTermination()
        last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
        for path in (checkpoint / "commits").glob(f"*{last}*"):
            path.unlink()
    assert sorted(records(store, "streamed")) == sorted(records(store, LOG))


SERVER = """
import subprocess, sys
from pyspark_timestone.session import spark_session
store, port, client, *jar = sys.argv[1:]
conf = {
    **{"spark.jars": one for one in jar},
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": port,
}
with spark_session(master="local[2]", conf=conf, scans=False):
    sys.exit(subprocess.run([sys.executable, "-c", client, store, f"sc://127.0.0.1:{port}"]).returncode)
"""
CLIENT = """
import sys
from pyspark.sql import SparkSession
store, address = sys.argv[1:]
spark = SparkSession.builder.remote(address).getOrCreate()
assert "connect" in type(spark).__module__
rows = spark.read.format("timestone").option("subscribe", "telemetry").load(store)
print(rows.count(), "ColumnarToRow" in rows._explain_string())
rows.select("value", "topic").write.format("timestone").option("log", "copy").mode("append").save(store)
source = spark.readStream.format("timestone").option("subscribe", "telemetry").option("startingOffsets", "earliest")
sink = source.load(store).select("value").writeStream.format("timestone").option("log", "streamed")
sink = sink.option("checkpointLocation", store + "/../checkpoint").trigger(availableNow=True)
sink.start(store).awaitTermination()
"""


@pytest.mark.timeout(300)
def test_connect_reads_streams_and_writes(store: Path, tmp_path: Path) -> None:
    pytest.importorskip("grpc_status", reason="`.ci/spark_versions` installs what Spark Connect needs")
    jar = [str(tmp_path / "timestone-spark.jar")] if HAS_LIMITS else []
    for one in jar:
        subprocess.run([sys.executable, "-m", "pyspark_timestone.jvm.jar", one], check=True, timeout=100)
    with reserved_port() as port:
        command = [sys.executable, "-c", SERVER, str(store), str(port), CLIENT, *jar]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert (done.returncode, done.stdout) == (0, f"10 {HAS_LIMITS}\n"), done.stderr
    assert len(records(store, "copy")) == len(records(store, "streamed")) == 10
