"""`spark.readStream`: each record once, in batches of any size, across restarts; and a loud end when that is
impossible."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import timestone
from pyspark_timestone.errors import DataLoss, GroupInUse, InvalidOption
from pyspark_timestone.offsets import OffsetRange
from pyspark_timestone.options.columns import source_schema
from pyspark_timestone.options.read_options import read_options
from pyspark_timestone.reading import consumer_group
from pyspark_timestone.reading.scan import ScanTask
from pyspark_timestone.reading.stream_reader import UnlimitedStreamReader
from tests.support.spark import Batches, reader, stream
from tests.support.stores import LOG, drop_first_segment, fill, iso
from timestone import Pin, ReaderId

pytestmark = pytest.mark.spark


@pytest.fixture
def sink(tmp_path: Path) -> Batches:
    return Batches(tmp_path / "out")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """2,500 records in three segments."""
    fill(tmp_path / "data", 2500)
    return tmp_path / "data"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def ranges(tasks: Any) -> list[OffsetRange]:
    return [task.range for task in tasks if isinstance(task, ScanTask)]


def planned_offset(checkpoint: Path, number: int) -> Any:
    """The end of a batch as Spark wrote it down."""
    return json.loads((checkpoint / "offsets" / str(number)).read_text().splitlines()[-1])


def forget_commit(checkpoint: Path, number: int) -> None:
    """What kill -9 leaves between the sink's work and Spark's note of it."""
    (checkpoint / "commits" / str(number)).unlink()
    (checkpoint / "commits" / f".{number}.crc").unlink()


def test_a_backlog_is_read_in_batches_of_the_size_asked_for(
    spark: SparkSession, store: Path, checkpoint: Path, sink: Batches
) -> None:
    sink.drain(stream(spark, store, maxOffsetsPerTrigger=1000), checkpoint)
    assert sink.sizes() == [1000, 1000, 500]
    assert sorted(sink.offsets()) == list(range(2500))


def test_without_a_limit_a_backlog_is_one_batch_and_ends(
    spark: SparkSession, store: Path, checkpoint: Path, sink: Batches
) -> None:
    """Spark compares offsets as text: with another order of keys the same offsets would be new data in each trigger."""
    fill(store, 10, log="alarms")
    fill(store, 10, partition=11)
    sink.drain(stream(spark, store), checkpoint)
    assert sink.sizes() == [2520]


def test_a_restarted_query_goes_on_where_it_was(
    spark: SparkSession, store: Path, checkpoint: Path, sink: Batches
) -> None:
    sink.drain(stream(spark, store), checkpoint)
    fill(store, 300)
    fill(store, 7, log="new")
    # Where it starts is in the checkpoint now; the option does not count any more.
    sink.drain(stream(spark, store, startingOffsets="latest"), checkpoint)
    assert sink.sizes() == [2500, 307]
    assert sorted(set(sink.all()[1])) == [("new", 0, n) for n in range(7)] + [
        (LOG, 0, n) for n in range(2500, 2800)
    ]
    sink.drain(stream(spark, store), checkpoint)
    assert len(sink.all()) == 2


def test_a_batch_that_was_not_noted_as_done_is_read_again_the_same(
    spark: SparkSession, store: Path, checkpoint: Path, tmp_path: Path
) -> None:
    first, again = Batches(tmp_path / "first"), Batches(tmp_path / "again")
    first.drain(stream(spark, store, maxOffsetsPerTrigger=700), checkpoint)
    forget_commit(checkpoint, 3)
    fill(store, 50)
    again.drain(stream(spark, store, maxOffsetsPerTrigger=700), checkpoint)
    assert again.all()[0] == first.all()[3]
    assert again.sizes() == [400, 50]


def test_a_first_batch_from_latest_is_read_again_the_same(
    spark: SparkSession, store: Path, checkpoint: Path, tmp_path: Path
) -> None:
    """Spark's checkpoint has the end of the first batch only. Asked for the start again, "latest" has moved on; the
    batch was empty and its records lost."""
    first, again = Batches(tmp_path / "first"), Batches(tmp_path / "again")
    query = first.start(stream(spark, store, startingOffsets="latest"), checkpoint)
    query.processAllAvailable()
    fill(store, 40)
    query.processAllAvailable()
    query.stop()
    query.awaitTermination()
    # Spark notes the first offset at once, although there was nothing to read.
    assert first.sizes() == [0, 40]
    assert first.offsets() == list(range(2500, 2540))

    # As if batch 0 had found those 40 records and the driver had died in it.
    end = planned_offset(checkpoint, 1)
    end["#"]["since"] = {LOG: {"0": 2500}}
    lines = (checkpoint / "offsets" / "0").read_text().splitlines()
    shutil.rmtree(checkpoint / "commits")
    shutil.rmtree(checkpoint / "offsets")
    (checkpoint / "offsets").mkdir()
    (checkpoint / "offsets" / "0").write_text("\n".join([*lines[:-1], json.dumps(end)]))

    fill(store, 60)
    again.drain(stream(spark, store, startingOffsets="latest"), checkpoint)
    assert again.sizes() == [40, 60]
    assert again.offsets() == list(range(2500, 2600))


def test_what_a_live_server_appends_is_read_once_and_completely(
    spark: SparkSession, tmp_path: Path, checkpoint: Path, sink: Batches
) -> None:
    count = 20_000
    command = [sys.executable, "-m", "tests.support.writer", str(tmp_path / "data"), str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert writer.stdout.readline() == "appending\n"
        query = sink.start(stream(spark, tmp_path / "data", maxOffsetsPerTrigger=6000), checkpoint)
        assert writer.stdout.readline() == "appended\n"
        # The writer has not closed the store: its active segment is read, not a sealed one.
        query.processAllAvailable()
        query.stop()
        writer.stdin.close()
        assert writer.wait(120) == 0
    assert sorted(sink.offsets()) == list(range(count))
    assert max(sink.sizes()) <= 6000
    assert len(sink.sizes()) >= 4


def test_nothing_is_planned_that_is_not_synced(tmp_path: Path) -> None:
    with timestone.open(tmp_path, sync_interval_ms=3_600_000) as opened:
        log = opened.log(LOG)
        log.append_many([b"x"] * 10, ack="synced")
        log.append_many([b"y"] * 5, ack="written")
        source = reader(tmp_path, startingOffsets="earliest")
        start = source.initialOffset()
        end = source.latestOffset(start, ReadAllAvailable())
        assert end[LOG] == {"0": 10}
        log.sync()
        assert source.latestOffset(end, ReadAllAvailable())[LOG] == {"0": 15}


def test_a_torn_tail_is_not_planned(store: Path) -> None:
    """Half a record behind the end, as a power loss leaves it."""
    folder = store / f"{LOG}-0"
    for suffix in ("segment", "index"):
        last = max(folder.glob(f"*.{suffix}"))
        (folder / f"{3000:020}.{suffix}").write_bytes(last.read_bytes()[:5000])
    source = reader(store, startingOffsets="earliest")
    assert source.latestOffset(source.initialOffset(), ReadAllAvailable())[LOG] == {"0": 2500}


def test_the_same_batch_is_cut_into_the_same_tasks(store: Path) -> None:
    source = reader(store, startingOffsets="earliest", minPartitions="4")
    start = source.initialOffset()
    end = source.latestOffset(start, ReadMaxRows(1800))
    planned = ranges(source.partitions(start, end))
    fill(store, 2000)
    assert ranges(reader(store, minPartitions="4").partitions(start, end)) == planned
    assert sum(one.end - one.start for one in planned) == 1800


def test_no_data_is_the_same_text(store: Path) -> None:
    source = reader(store, startingOffsets="earliest")
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    for _ in range(2):
        assert json.dumps(reader(store).latestOffset(end, ReadAllAvailable())) == json.dumps(end)
    assert source.partitions(end, end) == []
    # An empty new log is no data either.
    with timestone.open(store) as opened:
        opened.log("new")
    assert source.latestOffset(end, ReadAllAvailable()) == end


def test_a_stream_may_have_an_end(spark: SparkSession, store: Path, checkpoint: Path, sink: Batches) -> None:
    sink.drain(stream(spark, store, endingOffsets=json.dumps({LOG: {"0": 1200}})), checkpoint)
    assert sorted(sink.offsets()) == list(range(1200))


def test_an_end_that_the_log_has_not_reached_is_waited_for(store: Path) -> None:
    source = reader(store, startingOffsets="earliest", endingOffsets=json.dumps({LOG: {"0": 2600}}))
    end = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    assert end[LOG] == {"0": 2500}
    fill(store, 500)
    assert source.latestOffset(end, ReadAllAvailable())[LOG] == {"0": 2600}


def test_times_begin_and_end_a_stream(store: Path) -> None:
    with timestone.view(store) as view:
        log = view.log(LOG)
        moment_us = log.record(1500).timestamp_us
        first = log.offset_at(moment_us)
    moment = iso(moment_us)
    assert reader(store, startingTimestamp=moment).initialOffset()[LOG] == {"0": first}
    bounded = reader(store, startingOffsets="earliest", endingTimestamp=moment)
    assert bounded.latestOffset(bounded.initialOffset(), ReadAllAvailable())[LOG] == {"0": first}


def test_a_start_in_the_future_is_refused_or_means_the_end(store: Path) -> None:
    with pytest.raises(InvalidOption, match="invalid startingTimestamp: expected a time that a record"):
        reader(store, startingTimestamp="2999-01-01T00:00:00Z").initialOffset()
    later = reader(
        store, startingTimestamp="2999-01-01T00:00:00Z", startingOffsetsByTimestampStrategy="latest"
    )
    assert later.initialOffset()[LOG] == {"0": 2500}


def test_a_pattern_that_matches_nothing_yet_waits(tmp_path: Path) -> None:
    with timestone.open(tmp_path):
        pass
    source = reader(tmp_path, subscribePattern="plant-.*")
    start = source.initialOffset()
    assert source.latestOffset(start, ReadAllAvailable()) == start
    fill(tmp_path, 5, log="plant-7")
    end = source.latestOffset(start, ReadAllAvailable())
    assert [(one.start, one.end) for one in ranges(source.partitions(start, end))] == [(0, 5)]


def test_a_log_that_is_not_chosen_any_more_keeps_its_place(store: Path) -> None:
    fill(store, 10, log="alarms")
    both = reader(store, startingOffsets="earliest")
    end = both.latestOffset(both.initialOffset(), ReadAllAvailable())
    fill(store, 5)
    fill(store, 5, log="alarms")
    after = reader(store, subscribe=LOG).latestOffset(end, ReadAllAvailable())
    assert (after["alarms"], after[LOG]) == ({"0": 10}, {"0": 2505})


def test_retention_that_passed_the_checkpoint_is_told_in_numbers(
    spark: SparkSession, store: Path, checkpoint: Path, sink: Batches
) -> None:
    sink.drain(stream(spark, store, endingOffsets=json.dumps({LOG: {"0": 600}})), checkpoint)
    start = drop_first_segment(store)
    with pytest.raises(StreamingQueryException) as caught:
        sink.drain(stream(spark, store), checkpoint)
    assert (
        f"telemetry-0: offsets 600 to {start - 1} ({start - 600} records) have been deleted;"
        f" the log now starts at {start}" in str(caught.value)
    )
    sink.drain(stream(spark, store, failOnDataLoss="false"), checkpoint)
    assert sorted(sink.offsets()) == [*range(600), *range(start, 2500)]


def test_a_log_made_again_under_its_name_is_not_taken_for_the_old_one(
    spark: SparkSession, store: Path, checkpoint: Path, sink: Batches
) -> None:
    sink.drain(stream(spark, store), checkpoint)
    shutil.rmtree(store)
    fill(store, 3000)
    with pytest.raises(StreamingQueryException, match="telemetry-0: the log was deleted and made again"):
        sink.drain(stream(spark, store), checkpoint)
    sink.drain(stream(spark, store, failOnDataLoss="false"), checkpoint)
    assert sink.sizes() == [2500, 3000]


def test_a_log_that_vanished_is_named(store: Path) -> None:
    fill(store, 10, log="alarms")
    source = reader(store, startingOffsets="earliest")
    end = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    shutil.rmtree(store / "alarms-0")
    with pytest.raises(DataLoss, match="alarms-0: the log was read before and is not in the store any more"):
        source.latestOffset(end, ReadAllAvailable())
    assert reader(store, failOnDataLoss="false").latestOffset(end, ReadAllAvailable()) == end


def test_a_query_that_may_lose_data_goes_on_without_a_log_it_has_named(store: Path) -> None:
    fill(store, 10, log="alarms")
    source = reader(store, startingOffsets="earliest", subscribe=f"alarms,{LOG}", failOnDataLoss="false")
    end = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    shutil.rmtree(store / "alarms-0")
    assert source.reportLatestOffset() == {"#": {"version": 1}, LOG: {"0": 2500}}
    source.prepareForTriggerAvailableNow()
    assert source.latestOffset(end, ReadAllAvailable()) == end
    with pytest.raises(InvalidOption, match=r"no log alarms; .* does not exist yet, use subscribePattern"):
        source.initialOffset()


def test_a_store_that_is_older_than_the_checkpoint_is_noticed(tmp_path: Path) -> None:
    """After a restored backup, the offsets that the query has read belong to other records."""
    fill(tmp_path / "data", 100)
    shutil.copytree(tmp_path / "data", tmp_path / "backup")
    fill(tmp_path / "data", 100)
    source = reader(tmp_path / "data", startingOffsets="earliest")
    end = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    shutil.rmtree(tmp_path / "data")
    shutil.copytree(tmp_path / "backup", tmp_path / "data")
    with pytest.raises(DataLoss, match="offset 200 comes next, but the log ends at 100"):
        source.latestOffset(end, ReadAllAvailable())


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": "earliest"},
        {"startingTimestamp": "2000-01-01T00:00:00Z"},
        {"startingOffsetsByTimestamp": '{"telemetry":{"0":0}}'},
    ],
    ids=lambda options: " ".join(options.values())[:20],
)
def test_a_first_batch_keeps_its_start_whatever_is_answered_after_a_crash(
    store: Path, options: dict[str, str]
) -> None:
    first = reader(store, **options)
    began = first.initialOffset()
    fill(store, 1500)
    end = first.latestOffset(began, ReadAllAvailable())
    planned = ranges(first.partitions(began, end))
    assert sum(one.end - one.start for one in planned) == (1500 if "latest" in options.values() else 4000)
    # Retention and appends have moved both ends, and Spark asks again.
    fill(store, 10)
    again = reader(store, **options)
    assert ranges(again.partitions(again.initialOffset(), end)) == planned


def test_two_queries_of_one_group_are_refused(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_group, "_PATIENCE_S", 0.1)
    one, two = (reader(store, startingOffsets="earliest", group="billing") for _ in range(2))
    start = one.initialOffset()
    with pytest.raises(GroupInUse, match="another query reads"):
        two.initialOffset()
    with pytest.raises(GroupInUse, match="another query reads"):
        two.latestOffset(start, ReadAllAvailable())
    one.stop()
    two.initialOffset()
    two.stop()


def test_the_log_knows_how_far_a_group_is_and_waits_for_it(
    spark: SparkSession, store: Path, checkpoint: Path, sink: Batches
) -> None:
    frame = stream(spark, store, group="billing", pinMaxBytes=10_000_000, maxOffsetsPerTrigger=1000)
    sink.drain(frame, checkpoint)
    with timestone.view(store) as view:
        commitment = view.committed(ReaderId(LOG, 0, "billing"))
    assert commitment is not None
    assert commitment.pin == Pin(max_bytes=10_000_000)
    # Spark tells of a batch when it plans the next one.
    assert commitment.offset == 2000


def test_a_new_partition_and_a_new_log_are_found_under_a_pattern(store: Path) -> None:
    source = reader(store, startingOffsets="earliest", subscribePattern="tele.*")
    end = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    source.prepareForTriggerAvailableNow()
    fill(store, 3, partition=1)
    fill(store, 4, log="teleport")
    fill(store, 5, log="alarms")
    assert source.latestOffset(end, ReadAllAvailable()) == end, "not in a run that began before"
    after = reader(store, subscribePattern="tele.*").latestOffset(end, ReadAllAvailable())
    found = ranges(source.partitions(end, after))
    assert [(str(one.log), one.start, one.end) for one in found] == [
        ("telemetry-1", 0, 3),
        ("teleport-0", 0, 4),
    ]


def test_a_lost_tail_ends_the_query_although_other_records_have_its_offsets_now(store: Path) -> None:
    """What a power loss on a disk that lied leaves: offsets that were read are given out again, in a later epoch."""
    source = reader(store, startingOffsets="earliest")
    end = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    end["#"]["logs"][LOG]["0"]["epoch"] += 1
    fill(store, 100)
    with pytest.raises(
        DataLoss, match="the store is older than the checkpoint: it is in epoch 0, and was read in"
    ):
        source.latestOffset(end, ReadAllAvailable())


def unlimited(store: Path, **options: str) -> UnlimitedStreamReader:
    """The reader of Spark 4.0 and 4.1, without Spark."""
    chosen = read_options({"path": str(store), **options}, streaming=True)
    return UnlimitedStreamReader(chosen, source_schema())


def test_unlimited_reader_reads_all_there_is_when_spark_does_not_say_where_a_batch_begins(
    store: Path,
) -> None:
    """Calls in the order in which Spark 4.0 and 4.1 make them."""
    source = unlimited(store, startingOffsets="earliest")
    end = source.latestOffset()
    assert ranges(source.partitions(source.initialOffset(), end))[-1].end == 2500
    assert json.dumps(source.latestOffset()) == json.dumps(end)
    fill(store, 100)
    following = source.latestOffset()
    (task,) = ranges(source.partitions(end, following))
    assert (task.start, task.end) == (2500, 2600)


def test_unlimited_reader_continues_at_the_checkpoint_when_the_query_is_started_again(store: Path) -> None:
    source = unlimited(store)
    end = source.latestOffset()
    fill(store, 100)
    again = unlimited(store)
    # What Spark does first: it plans the last batch, which may be done already.
    again.partitions(end, end)
    (task,) = ranges(again.partitions(end, again.latestOffset()))
    assert (task.start, task.end) == (2500, 2600)


def test_unlimited_reader_keeps_the_start_when_records_come_before_spark_asks_for_it(store: Path) -> None:
    """These versions ask for the end of the first batch before they ask for its start, which is "latest" here."""
    source = unlimited(store)
    first = source.latestOffset()
    fill(store, 100)
    began = source.initialOffset()
    assert ranges(source.partitions(began, first)) == []
    (task,) = ranges(source.partitions(first, source.latestOffset()))
    assert (task.start, task.end) == (2500, 2600)
