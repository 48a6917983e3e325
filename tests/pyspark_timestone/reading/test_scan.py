"""One task without Spark around it: it yields what it was planned for, or says what is missing."""

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.serializers import CPickleSerializer

import timestone
from pyspark_timestone.errors import DataLoss
from pyspark_timestone.offsets import LogPartition, OffsetRange
from pyspark_timestone.options.columns import arrow_schema, source_schema
from pyspark_timestone.options.read_options import read_options
from pyspark_timestone.reading import scan as module
from pyspark_timestone.reading.batch_reader import TimestoneReader
from pyspark_timestone.reading.scan import ScanTask, plan, scan
from tests.support.opened_files import opened_files
from tests.support.stores import LOG, drop_first_segment, fill, iso
from timestone import LogConfig, view

KEY = LogPartition(LOG, 0)
SCHEMA = arrow_schema(source_schema(["offset", "value"]))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """2,500 records in three segments, on five topics in turn."""
    fill(tmp_path, 2500)
    return tmp_path


def task(store: Path, start: int, end: int) -> ScanTask:
    with view(store) as there:
        return ScanTask(OffsetRange(KEY, start, end), there.log(LOG).id)


def read(store: Path, one: ScanTask, **options: str) -> list[int]:
    batches = scan(one, read_options({"path": str(store), **options}, streaming=False), SCHEMA)
    offsets: list[int] = pa.Table.from_batches(batches, schema=SCHEMA).column("offset").to_pylist()
    return offsets


@pytest.mark.parametrize("recovered", [True, False], ids=["recovered", "as it is"])
@pytest.mark.parametrize("base", [0, 1000, 2000])
@pytest.mark.parametrize("topics", ["", "devices/1/state"])
def test_lost_segment_fails_the_query_or_is_warned_of(
    store: Path, topics: str, base: int, recovered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The plan is cut where segments begin and end, so that no task had the offsets of one that was lost."""
    (store / f"{LOG}-0" / f"{base:020d}.index").unlink()
    if recovered:
        timestone.open(store).close()
    chosen = {"path": str(store), **({"topics": topics} if topics else {})}
    with view(store) as there:
        logs, ranges = {KEY: there.log(LOG)}, [OffsetRange(KEY, 0, there.log(LOG).end_offset)]
        with pytest.raises(DataLoss, match=f"offsets {base} to [0-9]+ are lost"):
            plan(ranges, logs, read_options(chosen, streaming=False))
        options = read_options({**chosen, "failOnDataLoss": "false"}, streaming=False)
        with caplog.at_level(logging.WARNING):
            tasks = plan(ranges, logs, options)
    assert f"offsets {base} to " in caplog.text
    assert all(isinstance(one, ScanTask) and one.range.start not in range(base, base + 1000) for one in tasks)


@pytest.mark.parametrize(("start", "end"), [(0, 1000), (990, 1000), (1000, 1001), (2499, 2500)])
def test_a_task_reads_exactly_its_range(store: Path, start: int, end: int) -> None:
    assert read(store, task(store, start, end)) == list(range(start, end))


def test_batches_are_as_large_as_they_may_be(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = read_options({"path": str(store)}, streaming=False)
    assert [one.num_rows for one in scan(task(store, 0, 1000), options, SCHEMA)] == [1000]
    monkeypatch.setattr(module, "BATCH_RECORDS", 300)
    assert [one.num_rows for one in scan(task(store, 0, 1000), options, SCHEMA)] == [300, 300, 300, 100]
    monkeypatch.setattr(module, "BATCH_BYTES", 1)
    assert [one.num_rows for one in scan(task(store, 0, 5), options, SCHEMA)] == [1] * 5


@pytest.mark.parametrize(
    "topics", ["devices/3/state", "devices/+/state", "nothing", "devices/1/#,devices/2/#"]
)
def test_topics_are_searched_for_in_the_range_only(store: Path, topics: str) -> None:
    wanted = {
        "devices/3/state": {3},
        "devices/+/state": {0, 1, 2, 3, 4},
        "nothing": set(),
        "devices/1/#,devices/2/#": {1, 2},
    }
    expected = [offset for offset in range(100, 207) if offset % 5 in wanted[topics]]
    assert read(store, task(store, 100, 207), topics=topics) == expected


def test_offsets_that_compaction_has_removed_are_no_loss(store: Path) -> None:
    """The same offsets are planned as before, and give the records that are left."""
    planned = [task(store, start, start + 500) for start in range(0, 2500, 500)]
    with timestone.open(store) as owner:
        owner.maintenance.stop()  # or it might be first
        log = owner.log(LOG)
        log.configure(compact=True)
        assert log.apply_compaction() == 2495
    left = [2495, 2496, 2497, 2498, 2499]
    assert [read(store, one) for one in planned] == [[], [], [], [], left]
    assert [read(store, one, topics="devices/+/state") for one in planned] == [[], [], [], [], left]
    assert read(store, task(store, 2490, 2498)) == [2495, 2496, 2497]


def test_a_task_survives_the_way_to_the_worker(store: Path) -> None:
    one = task(store, 5, 9)
    serializer: Any = CPickleSerializer()
    again = serializer.loads(serializer.dumps(one))
    assert (again.range, again.log_id) == (one.range, one.log_id)


def test_missing_records_fail_the_task_or_are_skipped_with_a_warning(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with view(store) as there:
        log = there.log(LOG)
    one = ScanTask(OffsetRange(KEY, 990, 1010), log.id)
    first = drop_first_segment(store)
    with pytest.raises(DataLoss, match=r"10 of the 20 records of the planned offsets \[990, 1010\) are gone"):
        read(store, one)
    with caplog.at_level(logging.WARNING):
        assert read(store, one, failOnDataLoss="false") == list(range(first, 1010))
    assert "continuing" in caplog.text


def test_a_task_of_another_log_reads_nothing(store: Path) -> None:
    one = ScanTask(OffsetRange(KEY, 0, 10), 12345)
    with pytest.raises(DataLoss, match="made again while it was read"):
        read(store, one)
    assert read(store, one, failOnDataLoss="false") == []


def test_a_task_of_a_vanished_log_says_so(store: Path) -> None:
    one = ScanTask(OffsetRange(LogPartition("alarms", 0), 0, 10), 1)
    with pytest.raises(DataLoss, match="alarms-0"):
        read(store, one)
    assert read(store, one, failOnDataLoss="false") == []


def test_plan_is_one_task_a_segment(store: Path) -> None:
    options = read_options({"path": str(store)}, streaming=False)
    with view(store) as there:
        log = there.log(LOG)
        tasks = plan([OffsetRange(KEY, 10, 2010)], {KEY: log}, options)
    assert [one.range for one in tasks if isinstance(one, ScanTask)] == [
        OffsetRange(KEY, 10, 1000),
        OffsetRange(KEY, 1000, 2000),
        OffsetRange(KEY, 2000, 2010),
    ]


def test_a_task_planned_before_its_segment_was_compressed_reads_the_same(store: Path) -> None:
    planned = task(store, 900, 2100)
    with timestone.open(store, delete_delay_ms=0) as owner:
        owner.maintenance.stop()
        log = owner.log(LOG)
        log.configure(compression="zstd")
        assert log.apply_compression() == 3
    assert not list((store / f"{LOG}-0").glob(f"{0:020d}.segment"))
    assert read(store, planned) == list(range(900, 2100))
    assert read(store, planned, topics="devices/3/state") == list(range(903, 2100, 5))


@pytest.fixture(scope="module")
def rare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten sealed segments; one of them holds the one record of a rare topic."""
    path = tmp_path_factory.mktemp("rare") / "data"
    with timestone.open(path) as store:
        log = store.log(LOG, config=LogConfig(segment_entries=100))
        for number in range(10):
            topics = ["plant/often"] * 100
            if number == 7:
                topics[50] = "plant/rare"
            log.append_many([b"x"] * 100, topics=topics)
        log.roll()
    return path


def opened_by(store: Path, **options: str) -> tuple[int, list[str]]:
    """How many rows a read yields, and the segments it opens for them."""
    chosen = read_options({"path": str(store), **options}, streaming=False)
    reader = TimestoneReader(chosen, source_schema(["offset", "value"]))
    with opened_files(".segment") as opened:
        rows = sum(batch.num_rows for task in reader.partitions() for batch in reader.read(task))
    return rows, sorted({str(int(name.split(".")[0])) for name in opened})


def test_only_segments_with_the_topic_are_opened(rare: Path) -> None:
    assert opened_by(rare, topics="plant/rare") == (1, ["700"])
    assert opened_by(rare, topics="+/rare,nothing/#") == (1, ["700"])
    assert opened_by(rare, topics="nothing/#") == (0, [])
    assert len(opened_by(rare, topics="plant/often")[1]) == 10


def test_only_segments_of_the_time_and_the_offsets_are_opened(rare: Path) -> None:
    with timestone.view(rare) as view:
        first, last = (iso(view.log(LOG).record(offset).timestamp_us) for offset in (400, 600))
    assert opened_by(rare, startingTimestamp=first, endingTimestamp=last) == (200, ["400", "500", "600"])
    bounds = {
        "startingOffsets": json.dumps({LOG: {"0": 250}}),
        "endingOffsets": json.dumps({LOG: {"0": 400}}),
    }
    assert opened_by(rare, **bounds) == (150, ["200", "300"])
