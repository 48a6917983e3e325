"""Rows of "Differences from Spark's Kafka source" on docs/spark.md, and cases in which there is none."""

import json
import logging
import re
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import timestone
from pyspark_timestone.errors import DataLoss, InvalidOption
from pyspark_timestone.options.columns import source_schema
from pyspark_timestone.options.read_options import read_options
from pyspark_timestone.reading.batch_reader import TimestoneReader
from pyspark_timestone.reading.scan import ScanTask
from tests.support.spark import batch, offsets, reader
from tests.support.stores import LOG, fill

ROOT = Path(__file__).resolve().parents[3]
FUTURE = "2999-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,500 records of telemetry in three segments, and logs of one record. For tests that change nothing."""
    path = tmp_path_factory.mktemp("kafka") / "data"
    fill(path, 2500)
    for log in ("alarms", "alarms-old"):
        fill(path, 1, log=log)
    return path


def ranges(store: Path, **options: str) -> list[tuple[str, int, int]]:
    """Return log, start and end of each task of a batch."""
    planned = TimestoneReader(
        read_options({"path": str(store), **options}, streaming=False), source_schema()
    ).partitions()
    tasks = [one for one in planned if isinstance(one, ScanTask)]
    return [(one.range.log.log, one.range.start, one.range.end) for one in tasks]


def logs(store: Path, **options: str) -> set[str]:
    return {log for log, _, _ in ranges(store, **options)}


def test_each_difference_on_the_page_has_a_test_here() -> None:
    page = (ROOT / "docs/spark.md").read_text()
    section = page.partition("### Differences from Spark's Kafka source")[2].partition("\n#")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| Case")]
    here = Path(__file__).read_text()
    tests = [match[1] for row in rows if (match := re.search(r"<!-- (test_\w+) -->", row))]
    assert len(tests) == len(rows) > 10
    assert [name for name in tests if f"def {name}(" not in here] == []


def test_no_choice_of_logs_reads_every_log(store: Path) -> None:
    assert logs(store) == {LOG, "alarms", "alarms-old"}


def test_a_pattern_is_matched_with_whole_names(store: Path) -> None:
    assert logs(store, subscribePattern="alarms") == {"alarms"}
    assert logs(store, subscribePattern=".*alarms.*") == {"alarms", "alarms-old"}


def test_a_pattern_is_one_of_java(store: Path) -> None:
    assert logs(store, subscribePattern=r"(?<name>[a-z&&[^b]]+)") == {LOG, "alarms"}
    assert logs(store, subscribePattern=r"\p{Lower}+") == {LOG, "alarms"}
    with pytest.raises(InvalidOption, match=r"^invalid subscribePattern: expected a regular"):
        ranges(store, subscribePattern=r"alarms\R")


def test_an_unknown_option_is_refused(store: Path) -> None:
    with pytest.raises(InvalidOption, match="did you mean 'maxOffsetsPerTrigger'"):
        ranges(store, maxOffsetPerTrigger="5")


def test_options_that_kafka_refuses_are_refused(store: Path) -> None:
    for streaming in (False, True):
        for name in ("auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit",
                     "interceptor.classes"):  # fmt: skip
            with pytest.raises(
                InvalidOption, match=f"^unsupported option 'kafka.{name}', as in Spark's Kafka"
            ):
                read_options({"path": str(store), f"kafka.{name}": "x"}, streaming=streaming)


def test_offsets_of_partitions_that_are_not_read_are_refused(store: Path) -> None:
    more = json.dumps({LOG: {"0": 5, "1": 5}})
    for name in (
        "startingOffsets",
        "endingOffsets",
        "startingOffsetsByTimestamp",
        "endingOffsetsByTimestamp",
    ):
        with pytest.raises(
            InvalidOption, match=rf"^invalid {name}: expected .*\(telemetry-0\), got telemetry-1 too"
        ):
            ranges(store, subscribe=LOG, **{name: more})
    with pytest.raises(InvalidOption, match=r"^invalid startingOffsets: .* got telemetry-1 too"):
        reader(store, subscribe=LOG, startingOffsets=more).initialOffset()
    with pytest.raises(InvalidOption, match="got none for alarms-0"):
        ranges(store, subscribe=f"{LOG},alarms", startingOffsets=json.dumps({LOG: {"0": 5}}))


def test_the_end_of_a_stream_may_name_partitions_that_come_later(store: Path) -> None:
    end = json.dumps({LOG: {"0": 5}, "later": {"0": 5}})
    source = reader(store, subscribePattern=f"{LOG}|later", startingOffsets="earliest", endingOffsets=end)
    assert source.end_of_batch(source.initialOffset())[LOG] == {"0": 5}


def test_a_start_behind_the_end_is_data_loss(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    start = {"subscribe": LOG, "startingOffsets": json.dumps({LOG: {"0": 9000}})}
    with pytest.raises(DataLoss, match="telemetry-0: offset 9000 comes next, but the log ends at 2500"):
        ranges(store, **start)
    with pytest.raises(DataLoss):
        reader(store, **start).initialOffset()
    with caplog.at_level(logging.WARNING):
        assert ranges(store, **start, failOnDataLoss="false") == []
    assert len(caplog.messages) == 1
    assert reader(store, **start, failOnDataLoss="false").initialOffset()[LOG] == {"0": 2500}


def test_a_start_time_in_the_future_is_refused_without_a_strategy(spark: SparkSession, store: Path) -> None:
    start = {"subscribe": LOG, "startingTimestamp": FUTURE}
    with pytest.raises(AnalysisException, match="expected a time that a record of telemetry-0"):
        batch(spark, store, **start).count()
    assert offsets(batch(spark, store, **start, startingOffsetsByTimestampStrategy="latest")) == []
    # An end in the future is the end that is there now, as in Kafka's source.
    assert batch(spark, store, subscribe=LOG, endingTimestamp=FUTURE).count() == 2500


def test_a_missing_partition_of_assign_is_refused(store: Path) -> None:
    with pytest.raises(InvalidOption, match=r"no log telemetry-7; it has .*telemetry-0"):
        ranges(store, assign=f'{{"{LOG}":[0,7]}}')


@pytest.mark.parametrize("count", [1, 3, 4, 7, 8, 100])
def test_min_partitions_is_the_number_of_tasks_unless_segments_need_more(store: Path, count: int) -> None:
    tasks = ranges(store, subscribe=LOG, minPartitions=str(count))
    assert len(tasks) == max(3, count)
    assert [offset for _, start, end in tasks for offset in range(start, end)] == list(range(2500))


def test_a_task_has_at_most_so_many_records_of_one_segment(store: Path) -> None:
    sizes = [end - start for _, start, end in ranges(store, subscribe=LOG, maxRecordsPerPartition="600")]
    assert sizes == [500, 500, 500, 500, 500]


def test_a_delay_without_what_it_delays_is_refused(store: Path) -> None:
    with pytest.raises(
        InvalidOption, match=r"^invalid maxTriggerDelay: expected minOffsetsPerTrigger beside it"
    ):
        reader(store, maxTriggerDelay="5m")


def test_an_option_of_streams_changes_nothing_in_a_batch(store: Path) -> None:
    assert ranges(store, maxOffsetsPerTrigger="5") == ranges(store)


def test_a_stream_may_end(store: Path) -> None:
    source = reader(
        store, subscribe=LOG, startingOffsets="earliest", endingOffsets=json.dumps({LOG: {"0": 7}})
    )
    assert source.end_of_batch(source.initialOffset())[LOG] == {"0": 7}


def test_a_log_that_is_made_again_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    fill(tmp_path, 100)
    source = reader(tmp_path, startingOffsets="earliest")
    end = source.end_of_batch(source.initialOffset())
    with timestone.open(tmp_path) as opened:
        opened.delete_log(LOG, 0)
    fill(tmp_path, 200)
    with pytest.raises(DataLoss, match="the log was deleted and made again"):
        reader(tmp_path, startingOffsets="earliest").end_of_batch(end)
