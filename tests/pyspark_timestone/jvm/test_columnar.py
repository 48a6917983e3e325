"""Columns instead of rows: the same answers, and nothing that stays behind."""

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgpack
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import timestone
from pyspark_timestone.jvm import columnar
from pyspark_timestone.jvm.columnar import SETTING, hand_over_columns
from tests.support.spark import Batches, batch, stream
from tests.support.stores import fill
from timestone.config import LogConfig

pytestmark = pytest.mark.spark

T = TypeVar("T")
COUNT = 2500
TYPES = (
    "id bigint, small tinyint, on boolean, price decimal(12,3), day date, at timestamp, there timestamp_ntz, "
    "rate float, name string, tags array<string>, inner struct<a: int, b: array<double>>"
)


def by_rows(spark: SparkSession, ask: Callable[[], T]) -> T:
    spark.conf.set(SETTING, "false")
    try:
        return ask()
    finally:
        spark.conf.unset(SETTING)


def goes_by_columns(frame: DataFrame) -> bool:
    plan: str = frame._jdf.queryExecution().executedPlan().toString()
    return "ColumnarToRow" in plan


def document(number: int) -> dict[str, Any]:
    """A message with something in each field, or in every third without."""
    if number % 3 == 0:
        return {"id": number}
    return {
        "id": number,
        "small": number % 128,
        "on": number % 2 == 0,
        "price": number / 8,
        "day": f"20{number % 90 + 10}-02-28",
        "at": "2026-11-22T12:00:00.123456Z",
        "there": "2026-11-22T12:00:00",
        "rate": number / 4,
        "name": "ü" * (number % 5),
        "tags": [f"t{each}" for each in range(number % 4)],
        "inner": {"a": number, "b": [number / 2, None]},
    }


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Several segments, records with and without headers, tombstones, and messages of all types."""
    path = tmp_path_factory.mktemp("columnar") / "data"
    with timestone.open(path, ack="written") as opened:
        log = opened.log("telemetry", config=LogConfig(segment_entries=700))
        for number in range(COUNT):
            headers = [(f"k{each}", bytes([each])) for each in range(number % 3)]
            value = json.dumps(document(number)).encode()
            log.append(value, topic=f"devices/{number % 7}", headers=headers)
    return path


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"columns": "value"},
        {"columns": "offset,topic,timestamp"},
        {"payload": "json", "payloadSchema": TYPES, "columns": "offset,payload"},
        {"payload": "json", "payloadSchema": TYPES},
        {"minPartitions": 5},
        {"topics": "devices/3"},
        {"topics": "nothing/here"},
    ],
    ids=str,
)
def test_columns_say_what_rows_say(spark: SparkSession, store: Path, options: dict[str, Any]) -> None:
    def rows() -> list[Any]:
        return batch(spark, store, **options).collect()

    assert goes_by_columns(batch(spark, store, **options))
    assert not by_rows(spark, lambda: goes_by_columns(batch(spark, store, **options)))
    assert sorted(rows(), key=str) == sorted(by_rows(spark, rows), key=str)


WHERE = (
    # condition, tasks that are left of four
    ("offset >= 2150", 1),
    ("offset > 650 and offset < 750", 1),  # of two segments that meet
    ("offset in (3, 2400)", 4),
    ("offset = 5 or topic = 'devices/1'", 4),
    ("topic = 'devices/3' and offset < 700", 1),
    ("topic like 'devices/%'", 4),
    ("topic <=> 'nothing/here'", 1),
    ("topic = 'devices/+'", 4),
    ("log = 'other'", 1),
    ("partition = 0", 4),
    ("timestamp < timestamp '2020-01-01'", 1),
    ("timestamp >= '2020-01-01'", 4),
    ("cast(timestamp as date) > date '2020-01-01' and offset % 700 = 1", 4),
)


def test_where_prunes_and_returns_what_it_returns_without(spark: SparkSession, store: Path) -> None:
    """An empty scan has one task. All queries are of one DataFrame: none prunes another."""
    frame = batch(spark, store)

    def answers() -> dict[str, list[Any]]:
        return {
            condition: frame.where(condition).selectExpr("count(1)", "sum(offset)", "max(value)").collect()
            for condition, _ in WHERE
        }

    tasks = {condition: frame.where(condition).rdd.getNumPartitions() for condition, _ in WHERE}
    assert tasks == dict(WHERE)
    assert answers() == by_rows(spark, answers)
    few = frame.where("offset < 3")
    assert few.union(frame).union(few).count() == COUNT + 6


def test_only_the_columns_of_the_query_are_read(spark: SparkSession, store: Path) -> None:
    def columns(frame: DataFrame) -> str:
        plan: str = frame._jdf.queryExecution().executedPlan().toString()
        return re.sub("#[0-9]+L?", "", plan).partition("BatchScan timestone")[2].partition("]")[0][1:]

    frame = batch(spark, store)
    assert columns(frame.select("value").where("offset > 5")) == "offset, value"
    assert columns(frame.selectExpr("headers.key", "flags")) == "headers, flags"
    assert columns(frame.groupBy().count()) == "offset"
    decoded = batch(spark, store, payload="json", payloadSchema="id bigint", badRecords="column")
    # A payload that cannot be decoded fails the query, or leaves its row out.
    assert columns(decoded.groupBy().count()) == "payload, payload_error"
    assert decoded.count() == frame.count() == COUNT


def test_count_reads_no_record(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "data", 100)
    for segment in (tmp_path / "data").glob("*/*.segment"):
        segment.write_bytes(segment.read_bytes().replace(b"record 57", b"RECORD 57"))
    frame = batch(spark, tmp_path / "data")
    assert frame.count() == frame.select("value").count() == 100
    with pytest.raises(Exception, match="offset 57"):
        frame.selectExpr("max(value)").collect()


def test_maps_and_bytes_are_columns_as_well(spark: SparkSession, tmp_path: Path) -> None:
    fields = [
        {"labels": {f"l{each}": each for each in range(n % 3)}, "raw": bytes([n]) * n} for n in range(50)
    ]
    with timestone.open(tmp_path / "data") as opened:
        opened.log("packed").append_many([msgpack.packb(each) for each in fields])
    options = {"payload": "msgpack", "payloadSchema": "labels map<string,int>, raw binary"}
    frame = batch(spark, tmp_path / "data", **options).select("offset", "payload.*")
    assert goes_by_columns(frame)
    assert [row.asDict() for row in frame.orderBy("offset").drop("offset").collect()] == fields


def test_a_task_with_many_batches_keeps_the_fields_of_structs(spark: SparkSession, tmp_path: Path) -> None:
    """Each batch is read into the vectors of the one before."""
    count, large = 800, b"x" * 50_000  # a batch is of 16 MiB at most
    with timestone.open(tmp_path / "data", ack="written") as opened:
        log = opened.log("telemetry")
        for number in range(count):
            value = json.dumps({"a": {"b": number, "c": [number, None]}}).encode()
            log.append(value, headers=[("k", large), ("n", str(number).encode())])
    options = {
        "payload": "json",
        "payloadSchema": "a struct<b: bigint, c: array<bigint>>",
        "minPartitions": 1,
    }
    columns = ["offset", "payload.a.b", "payload.a.c", "headers[1].value", "length(headers[0].value)"]
    frame = batch(spark, tmp_path / "data", **options).selectExpr(*columns)
    wanted = [(n, n, [n, None], str(n).encode(), len(large)) for n in range(count)]
    assert sorted(tuple(row) for row in frame.collect()) == wanted


def test_it_is_the_same_for_whatever_spark_does_with_them(spark: SparkSession, store: Path) -> None:
    def answers() -> list[Any]:
        frame = batch(spark, store)
        kept = frame.cache()
        try:
            return [
                kept.count(),
                kept.selectExpr("sum(offset)", "max(topic)").collect(),
                frame.where("offset % 2 = 1").groupBy("topic").count().orderBy("topic").collect(),
                frame.alias("a").join(frame.alias("b"), "offset").count(),
                frame.toArrow().num_rows,
                sum(1 for _ in frame.toLocalIterator()),
            ]
        finally:
            kept.unpersist(blocking=True)

    assert answers() == by_rows(spark, answers)


@pytest.mark.parametrize("by_arrow", [True, False])
def test_functions_in_python_get_the_records_of_their_batch(
    spark: SparkSession, store: Path, by_arrow: bool
) -> None:
    """Spark may read ahead while a function has the columns of a batch."""
    twice = f.udf(lambda offset: 2 * offset, "bigint", useArrow=by_arrow)
    frame = spark.read.format("timestone").load(str(store)).select("offset", twice("offset"))
    assert goes_by_columns(frame)
    assert sorted(map(tuple, frame.collect())) == [(offset, 2 * offset) for offset in range(COUNT)]


def test_streams_go_by_rows(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    seen = Batches(tmp_path / "seen")
    seen.drain(stream(spark, store, maxOffsetsPerTrigger=1000), tmp_path / "checkpoint")
    assert seen.sizes() == [1000, 1000, 500]


def test_it_does_not_need_generated_code(spark: SparkSession, store: Path) -> None:
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    try:
        assert batch(spark, store).selectExpr("sum(offset)").first()[0] == sum(range(COUNT))  # type: ignore[index]
    finally:
        spark.conf.unset("spark.sql.codegen.wholeStage")


@pytest.fixture
def memory_of_arrow(spark: SparkSession) -> Callable[[], int]:
    allocator = spark._jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator()  # type: ignore[union-attr]
    return lambda: int(allocator.getAllocatedMemory())


def test_a_scan_that_ends_early_leaves_no_memory_behind(
    spark: SparkSession, store: Path, memory_of_arrow: Callable[[], int]
) -> None:
    before = memory_of_arrow()
    for _ in range(3):
        assert len(batch(spark, store).limit(1).collect()) == 1
        assert len(batch(spark, store).take(900)) == 900
    assert batch(spark, store).count() == COUNT
    assert memory_of_arrow() == before


def test_a_damaged_record_fails_the_scan_and_is_named(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "data", 100)
    segment = next((tmp_path / "data").glob("*/*.segment"))
    segment.write_bytes(segment.read_bytes().replace(b"record 57", b"RECORD 57"))
    frame = batch(spark, tmp_path / "data")
    assert goes_by_columns(frame)
    with pytest.raises(Exception, match=r"offset 57"):
        frame.collect()


def test_spark_counts_the_rows_and_what_workers_send(spark: SparkSession, store: Path) -> None:
    def counted() -> dict[str, int]:
        frame = batch(spark, store).agg({"offset": "max"})
        frame.collect()
        plan = frame._jdf.queryExecution().executedPlan()
        scan = plan.finalPhysicalPlan() if hasattr(plan, "finalPhysicalPlan") else plan
        leaf = scan.collectLeaves().head()
        while not leaf.nodeName().startswith("BatchScan"):
            leaf = leaf.plan().collectLeaves().head()
        metrics = leaf.metrics()
        return {name: metrics.apply(name).value() for name in ("numOutputRows", "pythonDataReceived")}

    columns, rows = counted(), by_rows(spark, counted)
    assert columns["numOutputRows"] == rows["numOutputRows"] == COUNT
    assert columns["pythonDataReceived"] > COUNT


def test_asking_again_changes_nothing(spark: SparkSession, store: Path) -> None:
    assert hand_over_columns(spark)
    assert hand_over_columns(spark.newSession())
    assert goes_by_columns(batch(spark.newSession(), store))


def test_where_spark_is_another_one_scans_go_by_rows(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Folder:
        def joinpath(self, name: str) -> "Folder":
            return self

        def read_text(self, encoding: str) -> str:
            return "package timestone; public class Unknown extends org.apache.spark.NotThere {}"

    monkeypatch.setattr(columnar, "files", lambda package: Folder())
    monkeypatch.setattr(columnar, "CLASS", "timestone.Unknown")
    with caplog.at_level(logging.WARNING, columnar.__name__):
        assert not hand_over_columns(spark)
    (said,) = caplog.messages
    assert (
        said.startswith(f"Spark {spark.version}: scans go by rows: ")
        and "CompileException" in said
        and "\n" not in said
    )


def test_scans_go_by_rows_when_spark_is_older_than_the_class(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pyspark.version.__version__", "4.1.4")
    assert not hand_over_columns(spark)
    (said,) = caplog.messages
    assert said.endswith("scans go by rows; they go by columns, and faster, from Spark 4.2 on")
