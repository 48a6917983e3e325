"""`df.write` and `df.writeStream` against real Spark: every row is appended once, despite failures of tasks and
drivers."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.streaming.query import StreamingQuery

import timestone
from pyspark_timestone.errors import InvalidRow
from pyspark_timestone.writing.sink import TimestoneWriter
from pyspark_timestone.writing.sink_options import sink_options
from pyspark_timestone.writing.spools import StoreSpool
from tests.support.spark import stream
from tests.support.stores import fill
from timestone import LogConfig
from timestone.record import FLAG_TOMBSTONE, Record

pytestmark = pytest.mark.spark

COMMANDS = "commands"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def records(store: Path, log: str = COMMANDS) -> list[Record]:
    with timestone.view(store) as view:
        return list(view.log(log).reader())


def payloads(store: Path) -> list[bytes]:
    return [record.payload for record in records(store)]


def append(frame: DataFrame, store: Path, **options: object) -> None:
    chosen = {"log": COMMANDS, **options}
    frame.write.format("timestone").options(**chosen).mode("append").save(str(store))  # type: ignore[arg-type]


def start(frame: DataFrame, store: Path, checkpoint: Path, **options: object) -> StreamingQuery:
    chosen = {"log": COMMANDS, "checkpointLocation": str(checkpoint), **options}
    writer = frame.writeStream.format("timestone").options(**chosen)  # type: ignore[arg-type]
    return writer.trigger(availableNow=True).start(str(store))


def commands(frame: DataFrame) -> DataFrame:
    return frame.select(
        "value", f.concat(f.lit("devices/"), f.col("offset") % 3, f.lit("/cmd")).alias("topic")
    )


def left_behind(store: Path) -> list[str]:
    """What lies in the inbox besides the bell."""
    inbox = store / "inbox"
    return [str(path.relative_to(inbox)) for path in inbox.rglob("*") if path.name not in ("bell", "staging")]


def test_rows_become_records(spark: SparkSession, target: Path) -> None:
    rows = [
        (b"plain", "devices/1/cmd", None),
        (b"", None, []),
        (b"headed", "devices/2/cmd", [("trace", b"\x00\xff"), ("trace", b""), ("none", None)]),
        (None, "devices/1/cmd", None),
    ]
    schema = "value binary, topic string, headers array<struct<key string, value binary>>"
    append(spark.createDataFrame(rows, schema).coalesce(1), target, retain="true")
    found = records(target)
    assert [(one.payload, one.topic) for one in found] == [
        (b"plain", "devices/1/cmd"),
        (b"", None),
        (b"headed", "devices/2/cmd"),
        (b"", "devices/1/cmd"),
    ]
    assert [one.headers for one in found] == [
        (),
        (),
        (("trace", b"\x00\xff"), ("trace", b""), ("none", b"")),
        (),
    ]
    assert [(one.qos, one.flags & FLAG_TOMBSTONE, one.flags & 1) for one in found] == [
        (1, 0, 1),
        (1, 0, 1),
        (1, 0, 1),
        (1, FLAG_TOMBSTONE, 1),
    ]
    assert left_behind(target) == []


def test_many_rows_of_many_tasks_keep_their_order(spark: SparkSession, target: Path) -> None:
    frame = spark.range(0, 30_000, numPartitions=3)
    append(frame.select(f.col("id").cast("string").alias("value")), target, topic="all/one", qos="0")
    found = records(target)
    assert [int(one.payload) for one in found] == list(range(30_000))
    assert {(one.topic, one.qos) for one in found} == {("all/one", 0)}


def test_the_sink_works_beside_the_owner_of_the_store(spark: SparkSession, target: Path) -> None:
    with timestone.open(target) as store:
        store.accept_postings()
        log = store.log(COMMANDS)
        log.append(b"mine")
        append(spark.createDataFrame([(b"theirs",)], "value binary"), target)
        assert log.synced_offset == 2
        log.append(b"mine again")
    assert payloads(target) == [b"mine", b"theirs", b"mine again"]


def test_a_stream_appends_each_row_once_also_when_its_last_batch_is_run_again(
    spark: SparkSession, tmp_path: Path, target: Path, checkpoint: Path
) -> None:
    source = tmp_path / "data"
    fill(source, 2500)
    start(commands(stream(spark, source, maxOffsetsPerTrigger=1000)), target, checkpoint).awaitTermination()
    fill(source, 10)
    # As if the driver had died after the append and before Spark noted it.
    for path in (checkpoint / "commits").glob("*2*"):
        path.unlink()
    start(commands(stream(spark, source, maxOffsetsPerTrigger=1000)), target, checkpoint).awaitTermination()
    assert sorted(int(one.split()[1]) for one in payloads(target)) == list(range(2510))
    assert left_behind(target) == []


def staged(writer: TimestoneWriter, values: list[bytes]) -> WriterCommitMessage:
    """What a task does, without Spark."""
    return writer.write(iter([pa.record_batch([pa.array(values, pa.binary())], names=["value"])]))


def writer_of(store: Path, **options: str) -> TimestoneWriter:
    return TimestoneWriter(sink_options({"path": str(store), "log": COMMANDS, **options}, streaming=False))


def test_a_task_that_fails_half_way_is_tried_again_and_leaves_no_half(
    spark: SparkSession, tmp_path: Path, target: Path
) -> None:
    """Spark tries the task again, in another attempt."""
    seen = str(tmp_path / "seen")

    def fail_once(rows: Iterable[Row]) -> Iterator[tuple[str]]:
        for number, row in enumerate(rows):
            if number == 20_000 and not os.path.lexists(seen):
                Path(seen).touch()
                raise RuntimeError("the task died half-way")
            yield (str(row["id"]),)

    rows = spark.range(0, 25_000, numPartitions=1).rdd.mapPartitions(fail_once)
    append(spark.createDataFrame(rows, "value string"), target)
    assert Path(seen).exists()
    assert [int(one) for one in payloads(target)] == list(range(25_000))
    assert left_behind(target) == []


def test_of_a_speculative_twin_only_one_counts(target: Path) -> None:
    """Both end and have staged; Spark gives the driver one message for the task."""
    writer = writer_of(target)
    staged(writer, [b"a", b"b"])
    writer.commit([None, staged(writer, [b"a", b"b"])])
    assert payloads(target) == [b"a", b"b"]
    assert left_behind(target) == []


def test_an_abort_leaves_nothing(target: Path) -> None:
    with timestone.open(target) as store:
        store.log(COMMANDS)
    writer = writer_of(target)
    writer.abort([staged(writer, [b"a"]), None])
    with timestone.open(target):
        pass
    assert payloads(target) == []
    assert [path for path in (target / "inbox").rglob("*") if path.is_file()] == []


def test_two_queries_may_write_to_one_log(spark: SparkSession, tmp_path: Path, target: Path) -> None:
    fill(tmp_path / "data", 300)
    with timestone.open(target) as store:
        store.accept_postings()
        frame = commands(stream(spark, tmp_path / "data"))
        queries = [start(frame, target, tmp_path / name) for name in ("one", "two")]
        for query in queries:
            query.awaitTermination()
    assert sorted(payloads(target)) == sorted([b"record %d" % number for number in range(300)] * 2)


def test_a_batch_write_is_repeated_unless_it_says_which_it_is(target: Path) -> None:
    for _ in range(2):
        writer = writer_of(target)
        writer.commit([staged(writer, [b"unnamed"])])
    for version in ("7", "7", "8", "3"):
        writer = writer_of(target, txnAppId="backfill", txnVersion=version)
        writer.commit([staged(writer, [b"version %s" % version.encode()])])
    assert payloads(target) == [b"unnamed", b"unnamed", b"version 7", b"version 8"]


def test_a_batch_without_rows_appends_nothing(spark: SparkSession, target: Path) -> None:
    append(spark.range(0).select(f.col("id").cast("string").alias("value")), target)
    assert payloads(target) == []


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (["payload"], {}, "got payload without value"),
        (["value", "offset"], {}, "got 'offset' too: drop it"),
        (["value"], {"log": ""}, "cannot name a log"),
        (["value"], {"logs": "x"}, "unknown option 'logs'; did you mean 'log'?"),
        (["value"], {"topic": "a/+"}, "contains a wildcard"),
        (["value"], {"txnAppId": "x"}, "invalid txnAppId: expected txnVersion beside it, got none"),
    ],
    ids=["no value", "column", "log", "option", "topic", "transaction"],
)
def test_what_is_wrong_is_said_before_anything_is_written(
    spark: SparkSession, target: Path, columns: list[str], options: dict[str, str], said: str
) -> None:
    frame = spark.createDataFrame([(b"x",) * len(columns)], ", ".join(f"{name} binary" for name in columns))
    with pytest.raises(PySparkException) as caught:
        append(frame, target, **options)
    assert said in str(caught.value)
    assert not target.exists()


def test_overwriting_a_log_is_refused(spark: SparkSession, target: Path) -> None:
    frame = spark.createDataFrame([(b"x",)], "value binary")
    with pytest.raises(PySparkException, match="invalid mode: expected append, got overwrite"):
        frame.write.format("timestone").option("log", COMMANDS).mode("overwrite").save(str(target))


def test_a_row_that_cannot_be_a_record_fails_the_write_and_leaves_nothing(
    spark: SparkSession, target: Path
) -> None:
    frame = spark.createDataFrame([(b"good", "a/b"), (b"bad", "a/#")], "value binary, topic string")
    with pytest.raises(PySparkException, match="column topic: topic 'a/#' contains a wildcard"):
        append(frame, target)
    with timestone.open(target) as store:
        assert store.log_names() == []


def test_kafka_layout_writes_key_value_headers_to_the_logs_that_rows_name(
    spark: SparkSession, target: Path
) -> None:
    rows = [
        ("one", "k1", b"v1", [("h", b"1")], 0),
        ("two", None, None, None, 5),
        ("one", "", None, None, None),
    ]
    schema = "topic string, key string, value binary, headers array<struct<key string, value binary>>, partition int"
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    for _ in range(2):  # The second time it is known.
        writer = frame.write.format("timestone").options(layout="kafka", txnAppId="job", txnVersion="1")
        writer.mode("append").save(str(target))
    read = spark.read.format("timestone").options(layout="kafka", includeHeaders="true").load(str(target))
    columns = read.select("topic", "partition", "offset", "key", "value", "headers").orderBy(
        "topic", "offset"
    )
    assert [tuple(row) for row in columns.collect()] == [
        ("one", 0, 0, b"k1", b"v1", [("h", b"1")]),
        ("one", 0, 1, b"", None, None),
        ("two", 5, 0, None, None, None),
    ]
    assert left_behind(target) == []


def test_stream_in_kafka_layout_copies_logs_exactly_once(
    spark: SparkSession, tmp_path: Path, target: Path, checkpoint: Path
) -> None:
    source = tmp_path / "data"
    for log, count in (("a", 900), ("b", 400)):
        fill(source, count, log=log)
    for _ in range(2):
        copied = stream(spark, source, layout="kafka", maxOffsetsPerTrigger=500)
        writer = copied.writeStream.format("timestone").options(
            layout="kafka", checkpointLocation=str(checkpoint)
        )
        writer.trigger(availableNow=True).start(str(target)).awaitTermination()
        # As if the driver had died after the append and before Spark noted it.
        last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
        for path in (checkpoint / "commits").glob(f"*{last}*"):
            path.unlink()
    with timestone.view(target) as view:
        assert [log for log, _ in view.log_names()] == ["a", "b"]
    for log, count in (("a", 900), ("b", 400)):
        assert [one.payload for one in records(target, log)] == [one.payload for one in records(source, log)]
        assert len(records(target, log)) == count


def test_task_with_more_logs_than_files_it_may_have_open_keeps_their_order(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoreSpool, "open_parts_most", 2)
    options = sink_options({"path": str(target), "layout": "kafka"}, streaming=False)
    topics = ["a", "b", "c", "a", "b", "c", "a"]
    batches = [
        pa.record_batch([pa.array([b"%d" % number]), pa.array([topic])], names=["value", "topic"])
        for number, topic in enumerate(topics)
    ]
    writer = TimestoneWriter(options)
    writer.commit([writer.write(iter(batches))])
    assert [one.payload for one in records(target, "a")] == [b"0", b"3", b"6"]
    assert [one.payload for one in records(target, "c")] == [b"2", b"5"]
    failing = pa.record_batch([pa.array([b"x"]), pa.array(["a/b"])], names=["value", "topic"])
    with pytest.raises(InvalidRow, match="Spark's partition 0, row 7 of the task"):
        writer.write(iter([*batches, failing]))
    assert [path for path in (target / "inbox").rglob("*") if path.is_file()] == []


def test_record_over_the_limit_is_refused_by_the_task_that_has_it(spark: SparkSession, target: Path) -> None:
    with timestone.open(target) as store:
        store.log(COMMANDS, config=LogConfig(record_bytes=1000))
    frame = spark.range(0, 6, numPartitions=2).selectExpr("repeat('x', if(id = 4, 1000, 900)) AS value")
    with pytest.raises(PySparkException) as caught:
        append(frame, target)
    assert "Spark's partition 1, row 1 of the task (the first is 0): a record of 1,000 bytes" in str(
        caught.value
    )
    assert "over the 969 that the sink can append to log commands-0 (its record_bytes, 1,000," in str(
        caught.value
    )
    assert payloads(target) == []


def test_null_value_is_read_back_as_null_in_each_layout(spark: SparkSession, target: Path) -> None:
    append(spark.createDataFrame([(b"",), (None,), (b"x",)], "value binary").coalesce(1), target)
    for layout in ("timestone", "kafka"):
        read = spark.read.format("timestone").options(layout=layout).load(str(target)).orderBy("offset")
        assert [row["value"] for row in read.collect()] == [b"", None, b"x"]
    assert stream(spark, target).schema["value"].nullable
