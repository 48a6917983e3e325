"""History from side files, tail from the log: each record once in every case, and filters reach Parquet."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import timestone
from pyspark_timestone import history
from pyspark_timestone.errors import DataLoss, InvalidOption
from pyspark_timestone.history import read_history
from pyspark_timestone.offsets import LogPartition, OffsetRange
from pyspark_timestone.options.read_options import ReadOptions
from pyspark_timestone.reading.batch_reader import batch_ranges
from pyspark_timestone.reading.store_view import SourceLog
from pyspark_timestone.side_files.keeper import SideFileKeeper
from tests.support.opened_files import opened_files
from tests.support.spark import batch, offsets
from tests.support.stores import LOG, drop_first_segment, fill, value_of
from tests.support.waiting import wait_for, wait_for_seals
from timestone import LogConfig

pytestmark = pytest.mark.spark


def keep(store: Path) -> None:
    with SideFileKeeper(store, keep_s=0, min_free_bytes=0) as keeper:
        keeper.run()


def side_files(store: Path) -> list[Path]:
    return sorted((store / "parquet").rglob("*.parquet"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4,000 records in side files and 500 that are in the log alone. For tests that change nothing."""
    path = tmp_path_factory.mktemp("history") / "data"
    fill(path, 4000)
    keep(path)
    fill(path, 500)
    return path


def rows_of(frame: DataFrame) -> list[Any]:
    return sorted(tuple(row) for row in frame.collect())


def test_rows_and_columns_are_those_of_the_source(spark: SparkSession, store: Path) -> None:
    frame = read_history(spark, store)
    assert len(frame.inputFiles()) == 4
    source = batch(spark, store)
    assert [(one.name, one.dataType) for one in frame.schema] == [
        (one.name, one.dataType) for one in source.schema
    ]
    assert rows_of(frame) == rows_of(source)


def test_options_choose_as_those_of_the_source_do(spark: SparkSession, store: Path) -> None:
    start, end = f'{{"{LOG}": {{"0": 500}}}}', f'{{"{LOG}": {{"0": 3500}}}}'
    frame = read_history(
        spark, store, startingOffsets=start, endingOffsets=end, columns="value,offset", minPartitions=2
    )
    assert len(frame.inputFiles()) == 2, "the others do not lie in the range as a whole"
    assert rows_of(frame) == sorted((bytearray(value_of(offset)), offset) for offset in range(500, 3500))
    with timestone.view(store) as view:
        moment_ms = view.log(LOG).record(2000).timestamp_us // 1000
    whole = batch(spark, store, startingTimestamp=moment_ms)
    assert rows_of(read_history(spark, store, startingTimestamp=moment_ms)) == rows_of(whole)


@pytest.mark.parametrize("name", ["topics", "payload", "group", "maxOffsetsPerTrigger", "nonsense"])
def test_other_options_are_refused(spark: SparkSession, store: Path, name: str) -> None:
    with pytest.raises(
        InvalidOption, match=f"invalid option of read_history: expected one of .*, got {name}"
    ):
        read_history(spark, store, **{name: "1"})


def scanned_rows(frame: DataFrame) -> int:
    """What Spark's reader of Parquet handed on: counted by Spark in the plan that has run."""
    plan = frame._jdf.queryExecution().executedPlan()
    plan = plan.executedPlan() if plan.nodeName() == "AdaptiveSparkPlan" else plan
    leaves = plan.collectLeaves()
    scans = [leaves.apply(number) for number in range(leaves.size())]
    scans = [one for one in scans if one.nodeName().startswith("Scan parquet")]
    assert scans
    return sum(one.metrics().apply("numOutputRows").value() for one in scans)


def test_filters_reach_parquet_and_row_groups_are_skipped(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path, 300_000, segment_entries=400_000)
    keep(tmp_path)
    frame = read_history(spark, tmp_path).where(f.col("offset") >= 299_990).select("value")
    assert sorted(bytes(row["value"]) for row in frame.collect()) == sorted(
        value_of(offset) for offset in range(299_990, 300_000)
    )
    assert 10 <= scanned_rows(frame) < 40_000, "one row group of three, and of that its last pages"
    frame.explain()
    plan = capfd.readouterr().out
    assert "PushedFilters: [IsNotNull(offset), GreaterThanOrEqual(offset,299990)]" in plan
    assert "ReadSchema: struct<offset:bigint,value:binary>" in plan
    with timestone.view(tmp_path) as view:
        last_us = view.log(LOG).record(299_999).timestamp_us
    later = read_history(spark, tmp_path).where(f.col("timestamp") > f.timestamp_micros(f.lit(last_us)))
    assert later.select("value").collect() == []
    assert scanned_rows(later.select("value")) == 0


def test_what_has_a_side_file_is_not_read_from_the_log(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path, 3000)
    keep(tmp_path)
    for path in (tmp_path / "telemetry-0").glob("*.segment"):
        path.write_bytes(b"")
    with opened_files(".segment") as opened:
        frame = read_history(spark, tmp_path)
    assert opened == []
    assert offsets(frame) == list(range(3000))


def test_holes_in_the_side_files_are_read_from_the_log(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path, 6000)
    fill(tmp_path, 1500, partition=1)
    keep(tmp_path)
    made = side_files(tmp_path)
    made[1].unlink()
    made[3].write_bytes(made[3].read_bytes()[:-1])
    frame = read_history(spark, tmp_path)
    assert len(frame.inputFiles()) == 6
    found = sorted((row["partition"], row["offset"]) for row in frame.select("partition", "offset").collect())
    assert found == [(0, offset) for offset in range(6000)] + [(1, offset) for offset in range(1500)]


def test_nothing_is_read_that_is_not_in_the_log_any_more(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path, 3000)
    keep(tmp_path)
    drop_first_segment(tmp_path)
    assert offsets(read_history(spark, tmp_path)) == list(range(1000, 3000))
    for path in (tmp_path / "telemetry-0").iterdir():
        path.unlink()
    (tmp_path / "catalog.db").unlink()
    fill(tmp_path, 5)
    assert len(side_files(tmp_path)) == 3
    assert offsets(read_history(spark, tmp_path)) == list(range(5))


def test_segment_that_is_deleted_while_a_read_is_planned_is_not_in_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, 3000)
    keep(tmp_path)
    planned: list[list[OffsetRange]] = []

    def plan(options: ReadOptions, logs: Mapping[LogPartition, SourceLog]) -> list[OffsetRange]:
        planned.append(batch_ranges(options, logs))
        if len(planned) == 1:
            # The first was looked at when the log was opened.
            drop_first_segment(tmp_path)
            drop_first_segment(tmp_path)
        return planned[-1]

    monkeypatch.setattr(history, "batch_ranges", plan)
    assert offsets(read_history(spark, tmp_path)) == list(range(2000, 3000))
    assert [one.start for (one,) in planned] == [0, 2000]


def test_a_frame_is_as_of_the_call_and_never_of_another_log(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path, 2000)
    keep(tmp_path)
    fill(tmp_path, 10)
    frame, other = read_history(spark, tmp_path), read_history(spark, tmp_path)
    fill(tmp_path, 1000)
    assert offsets(frame) == list(range(2010))
    for path in (tmp_path / "telemetry-0").iterdir():
        path.unlink()
    (tmp_path / "catalog.db").unlink()
    fill(tmp_path, 3000)
    with pytest.raises(PySparkException, match="deleted and made again"):
        other.count()


def test_a_side_file_that_vanishes_or_rots_ends_the_query(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path, 2000)
    keep(tmp_path)
    first, second = side_files(tmp_path)
    frame, other = read_history(spark, tmp_path), read_history(spark, tmp_path)
    sound = second.read_bytes()
    rotten = bytearray(sound)
    rotten[len(rotten) // 3] ^= 1
    second.write_bytes(rotten)
    with pytest.raises(Py4JJavaError, match=second.name):
        frame.collect()
    second.write_bytes(sound)
    first.unlink()
    with pytest.raises(Py4JJavaError, match=first.name):
        other.collect()


def test_loss_is_loud(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path, 3000)
    keep(tmp_path)
    drop_first_segment(tmp_path)
    start = f'{{"{LOG}": {{"0": 10}}}}'
    with pytest.raises(DataLoss, match="offsets 10 to 999"):
        read_history(spark, tmp_path, startingOffsets=start)
    frame = read_history(spark, tmp_path, startingOffsets=start, failOnDataLoss=False)
    assert offsets(frame) == list(range(1000, 3000))


def test_no_gap_and_no_overlap_while_the_owner_rolls_and_deletes(spark: SparkSession, tmp_path: Path) -> None:
    config = LogConfig(segment_entries=200, retention_bytes=60_000)
    with timestone.open(tmp_path, delete_delay_ms=0, min_free_bytes=0) as store:
        log = store.log(LOG, config=config)
        turns, taken = threading.Semaphore(0), threading.Semaphore(0)
        ended = threading.Event()

        def own() -> None:
            while turns.acquire() and not ended.is_set():
                log.append_many([value_of(log.end_offset + number) for number in range(7)], ack="written")
                taken.release()

        owner = threading.Thread(target=own)
        owner.start()
        try:
            from_files = 0
            with SideFileKeeper(tmp_path, min_free_bytes=0) as keeper:
                for _ in range(5):
                    # The owner appends while files are written, a read is planned, and it runs; in a round by
                    # less than what retention leaves, or it would delete what is planned and has no file yet.
                    turns.release(60)
                    keeper.run()
                    frame = read_history(spark, tmp_path)
                    from_files += len(frame.inputFiles())
                    rows = sorted((row["offset"], bytes(row["value"])) for row in frame.collect())
                    offset = rows[0][0] if rows else 0
                    assert rows == [
                        (offset + number, value_of(offset + number)) for number in range(len(rows))
                    ]
                    for _ in range(60):
                        taken.acquire()
                    wait_for_seals(log)  # so that there is a file of all that the next round may delete
        finally:
            ended.set()
            turns.release()
            owner.join()
        assert from_files > 0
        wait_for(lambda: log.start_offset > 0)
