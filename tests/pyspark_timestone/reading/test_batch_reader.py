"""`spark.read` against real Spark: the right rows, in the right columns, and clear words when that cannot be."""

import json
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import timestone
from pyspark_timestone.jvm.columnar import SETTING
from tests.support.spark import batch, offsets
from tests.support.stores import LOG, drop_first_segment, fill, iso, value_of

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,500 records in three segments. For tests that change nothing."""
    path = tmp_path_factory.mktemp("batch") / "data"
    fill(path, 2500)
    return path


def test_rows_are_the_records(spark: SparkSession, store: Path) -> None:
    rows = batch(spark, store).orderBy("offset").collect()
    assert [row["offset"] for row in rows] == list(range(2500))
    assert [bytes(row["value"]) for row in rows] == [value_of(offset) for offset in range(2500)]
    assert {row["topic"] for row in rows} == {f"devices/{number}/state" for number in range(5)}
    assert rows[7]["topic"] == "devices/2/state"
    assert {(row["log"], row["partition"], row["flags"], row["headers"]) for row in rows} == {
        (LOG, 0, 0, None)
    }
    with timestone.view(store) as view:
        assert rows[42]["timestamp"].timestamp() == view.log(LOG).record(42).timestamp_us / 1e6


def test_every_size_of_value_and_header_comes_through(spark: SparkSession, tmp_path: Path) -> None:
    values = [bytes(range(length)) for length in range(14)] + [b"x" * (1 << 20), b"", "grüße".encode()]
    headed = {3: [("trace", b"\x00\xff"), ("trace", b"")], 14: [("k", b"v" * 1000)], 15: [("empty", b"")]}
    with timestone.open(tmp_path) as opened:
        for number, value in enumerate(values):
            opened.log(LOG).append(value, topic="a/ü" if number % 2 else None, headers=headed.get(number, ()))
    rows = batch(spark, tmp_path).orderBy("offset").collect()
    assert [bytes(row["value"]) for row in rows] == values
    assert [row["topic"] for row in rows[:2]] == [None, "a/ü"]
    found = {
        row["offset"]: [(one["key"], bytes(one["value"])) for one in row["headers"]]
        for row in rows
        if row["headers"] is not None
    }
    assert found == headed


def test_one_task_may_be_many_arrow_batches(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path, 70_000, segment_entries=100_000)
    read = batch(spark, tmp_path)
    assert read.rdd.getNumPartitions() == 1
    assert read.agg(f.count("*"), f.sum("offset")).first() == (70_000, 70_000 * 69_999 // 2)


def test_an_empty_log_is_an_empty_frame(spark: SparkSession, tmp_path: Path) -> None:
    with timestone.open(tmp_path) as opened:
        opened.log(LOG)
    assert batch(spark, tmp_path).collect() == []


def test_frames_of_one_load_do_not_prune_each_other(spark: SparkSession, store: Path) -> None:
    """Spark 4.3 keeps what one query pushed down for all queries of the same DataFrame: they returned 20 rows of
    1,000,000, and a union of two filters only rows of one. So each scan here has a source of its own."""
    frame = batch(spark, store)
    one = frame.where(f.col("topic") == "devices/1/state")
    two = frame.where(f.col("topic") == "devices/2/state")
    assert one.where(f.col("offset") < 50).count() == 10
    assert frame.count() == 2500
    assert frame.agg(f.max("offset")).first() == (2499,)
    assert one.union(two).groupBy("topic").count().orderBy("topic").collect() == [
        ("devices/1/state", 500),
        ("devices/2/state", 500),
    ]
    assert one.union(frame).count() == 3000
    frame.createOrReplaceTempView("leak")
    assert spark.sql("select count(*) from leak where offset >= 2490").first() == (10,)
    assert spark.sql("select count(*) from leak").first() == (2500,)


def test_a_table_of_sparks_is_refused_and_a_view_is_not(spark: SparkSession, store: Path) -> None:
    options = f"USING timestone OPTIONS (path '{store}', Columns 'offset')"
    with pytest.raises(AnalysisException, match="Spark forgets the options of a table; CREATE TEMP VIEW"):
        spark.sql(f"CREATE TABLE forgetful {options}")
    spark.sql(f"CREATE OR REPLACE TEMP VIEW keeping {options}")
    assert spark.sql("SELECT * FROM keeping WHERE offset < 3").count() == 3


def test_each_query_reads_up_to_the_end_that_it_finds(spark: SparkSession, tmp_path: Path) -> None:
    """By rows, Spark keeps the plan of a DataFrame for good: then a new load is new, and sees more."""
    fill(tmp_path, 10)
    spark.conf.set(SETTING, "false")
    try:
        rows = batch(spark, tmp_path)
        assert rows.count() == 10
    finally:
        spark.conf.unset(SETTING)
    frame = batch(spark, tmp_path)
    assert frame.count() == 10
    fill(tmp_path, 5)
    assert frame.count() == batch(spark, tmp_path).count() == 15


def test_more_tasks_read_the_same_rows_in_the_same_order(spark: SparkSession, store: Path) -> None:
    whole, split = batch(spark, store), batch(spark, store, minPartitions=7)
    assert whole.rdd.getNumPartitions() == 3
    assert split.rdd.getNumPartitions() == 7
    parts = split.select("offset").rdd.glom().collect()
    assert [row["offset"] for part in parts for row in part] == list(range(2500))
    assert batch(spark, store, maxRecordsPerPartition=100).rdd.getNumPartitions() == 25


def test_offsets_bound_a_read(spark: SparkSession, store: Path) -> None:
    start, end = json.dumps({LOG: {"0": 990}}), json.dumps({LOG: {"0": 1010}})
    assert offsets(batch(spark, store, startingOffsets=start, endingOffsets=end)) == list(range(990, 1010))


def test_times_bound_a_read(spark: SparkSession, store: Path) -> None:
    with timestone.view(store) as view:
        log = view.log(LOG)
        moment_us = log.record(1500).timestamp_us
        first = log.offset_at(moment_us)
    moment = iso(moment_us)
    assert offsets(batch(spark, store, startingTimestamp=moment)) == list(range(first, 2500))
    assert offsets(batch(spark, store, endingTimestamp=moment)) == list(range(first))
    later = {"startingTimestamp": "2999-01-01T00:00:00Z", "startingOffsetsByTimestampStrategy": "latest"}
    assert offsets(batch(spark, store, **later)) == []


def test_topics_choose_records(spark: SparkSession, store: Path) -> None:
    chosen = batch(spark, store, topics="devices/1/+,devices/3/state", columns="topic,offset")
    assert chosen.columns == ["topic", "offset"]
    assert offsets(chosen) == [offset for offset in range(2500) if offset % 5 in (1, 3)]
    split = batch(spark, store, topics="devices/1/+", minPartitions=9)
    assert offsets(split) == [offset for offset in range(2500) if offset % 5 == 1]
    assert batch(spark, store, topics="plant/#").count() == 0


def test_several_logs_and_partitions_are_one_frame(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path, 10)
    fill(tmp_path, 20, partition=1)
    fill(tmp_path, 30, log="alarms")

    def counts(**options: str) -> dict[tuple[str, int], int]:
        rows = batch(spark, tmp_path, **options).groupBy("log", "partition").count().collect()
        return {(row["log"], row["partition"]): row["count"] for row in rows}

    assert counts() == {(LOG, 0): 10, (LOG, 1): 20, ("alarms", 0): 30}
    assert counts(subscribe=LOG) == {(LOG, 0): 10, (LOG, 1): 20}
    assert counts(subscribePattern="al.*") == {("alarms", 0): 30}
    assert counts(assign='{"telemetry":[1],"alarms":[0]}') == {(LOG, 1): 20, ("alarms", 0): 30}


def test_schema_may_come_from_the_user(spark: SparkSession, store: Path) -> None:
    read = spark.read.format("timestone").schema("offset bigint, value binary").load(str(store))
    assert read.where("offset = 3").first() == (3, bytearray(value_of(3)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "telemtry"}, "the store has no log telemtry; it has telemetry"),
        ({"failOnDataLos": "true"}, "unknown option 'failondatalos'; did you mean 'failOnDataLoss'?"),
        ({"columns": "offset,payload"}, "invalid columns: expected some of log, "),
        ({"startingOffsets": '{"telemetry":{"0":2}}', "endingOffsets": '{"telemetry":{"0":1}}'},
         "invalid endingOffsets: expected an end of telemetry-0 from the start 2 on, got 1"),
        ({"startingOffsets": '{"telemetry":{"0":2},"x":{"0":1}}'},
         "invalid startingOffsets: expected the partitions that are read (telemetry-0), got x-0 too"),
        ({"endingOffsets": '{"telemetry":{"0":9999}}'},
         "telemetry-0: offsets up to 9998 were planned, but the log ends at 2500"),
    ],
    ids=["log", "option", "column", "order", "others", "end"],
)  # fmt: skip
def test_what_is_wrong_reaches_the_user_in_words(
    spark: SparkSession, store: Path, options: dict[str, str], said: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        batch(spark, store, **options).count()
    assert said in str(caught.value)


def test_a_folder_that_is_no_store_is_said_to_be_none(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="is not a Timestone store"):
        batch(spark, tmp_path / "nowhere").count()


def test_a_schema_that_cannot_be_served_is_refused(spark: SparkSession, store: Path) -> None:
    with pytest.raises(AnalysisException, match="invalid schema: expected binary for 'value', got string"):
        spark.read.format("timestone").schema("value string").load(str(store)).count()


def test_deleted_records_are_told_in_numbers(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path, 2500)
    start = drop_first_segment(tmp_path)
    asked = {"startingOffsets": json.dumps({LOG: {"0": start - 4}})}
    with pytest.raises(
        AnalysisException, match=rf"offsets {start - 4} to {start - 1} \(4 records\) have been deleted"
    ):
        batch(spark, tmp_path, **asked).count()
    assert offsets(batch(spark, tmp_path, failOnDataLoss="false", **asked)) == list(range(start, 2500))
    assert batch(spark, tmp_path).count() == 2500 - start


def test_records_that_vanish_between_plan_and_read_fail_the_task(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path, 2500)
    planned = batch(spark, tmp_path)
    assert planned.rdd.getNumPartitions() == 3
    start = drop_first_segment(tmp_path)
    with pytest.raises(PythonException, match=f"{start} of the {start} records of the planned offsets"):
        planned.collect()


def test_a_damaged_record_fails_the_read_and_is_named(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path, 100)
    (segment,) = (tmp_path / f"{LOG}-0").glob("*.segment")
    data = bytearray(segment.read_bytes())
    data[data.index(b"record 60")] ^= 1
    segment.write_bytes(data)
    with pytest.raises(PythonException, match="the record at offset 60 is corrupt"):
        batch(spark, tmp_path).collect()
    assert offsets(batch(spark, tmp_path, failOnDataLoss="false")) == [n for n in range(100) if n != 60]


def test_a_compacted_log_gives_the_last_record_of_each_topic_at_its_offset(
    spark: SparkSession, tmp_path: Path
) -> None:
    fill(tmp_path, 2500)
    with timestone.open(tmp_path) as store:
        log = store.log(LOG)
        log.configure(compact=True)
        assert log.apply_compaction() == 2495
        log.append(b"after", topic="devices/1/state")
    read = batch(spark, tmp_path, maxRecordsPerPartition=400)
    rows = read.orderBy("offset").collect()
    assert [row["offset"] for row in rows] == [*range(2495, 2501)]
    assert [bytes(row["value"]) for row in rows[:5]] == [value_of(offset) for offset in range(2495, 2500)]
    last = read.groupBy("topic").agg(f.max_by("offset", "offset").alias("last"), f.count("*").alias("count"))
    assert {(row["topic"], row["count"]) for row in last.collect()} == {
        (f"devices/{number}/state", 2 if number == 1 else 1) for number in range(5)
    }
    assert offsets(batch(spark, tmp_path, topics="devices/1/+")) == [2496, 2500]
