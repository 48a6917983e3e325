"""What a scan opens for the filters and columns that a query has given it, without Spark around it."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_timestone.options.columns import arrow_schema, source_schema
from pyspark_timestone.options.read_options import read_options
from pyspark_timestone.reading.batch_reader import TimestoneReader
from tests.support.opened_files import opened_files
from tests.support.stores import LOG, fill
from timestone import view


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """2,500 records in three segments, the last of which has a topic of its own."""
    fill(tmp_path, 2000)
    fill(tmp_path, 500, topics=6)
    return tmp_path


def scan(store: Path, conditions: list[Any], *columns: str) -> pa.Table:
    """Plan and read as Spark does it, in one process."""
    schema = source_schema(columns)
    options = read_options({"path": str(store), "pushedFilters": json.dumps(conditions)}, streaming=False)
    reader = TimestoneReader(options, schema)
    batches = [one for task in reader.partitions() for one in reader.read(task)]
    return pa.Table.from_batches(batches, schema=arrow_schema(schema))


def time_of(store: Path, offset: int) -> int:
    with view(store) as there:
        return there.log(LOG).record(offset).timestamp_us


@pytest.mark.parametrize(
    ("conditions", "opened", "rows"),
    [
        ([], 3, 2500),
        ([["offset", "<", [1000]]], 1, 1000),
        ([["offset", "in", [1700]]], 1, 1),
        ([["topic", "in", ["devices/5/state"]]], 1, 83),
        ([["topic", "in", ["devices/7/state"]]], 0, 0),
        ([["log", "in", ["other"]]], 0, 0),
    ],
    ids=str,
)
def test_scan_opens_segments_that_may_have_matching_records(
    store: Path, conditions: list[Any], opened: int, rows: int
) -> None:
    with opened_files(".segment") as names:
        assert scan(store, conditions, "offset", "value").num_rows == rows
    assert len(set(names)) == opened


def test_scan_opens_segments_of_the_time_asked_for(store: Path) -> None:
    first, last = time_of(store, 1000), time_of(store, 1999)
    with opened_files(".segment") as names:
        found = scan(store, [["timestamp", ">=", [first]], ["timestamp", "<=", [last]]], "value")
    # The one that follows is opened to find where the time ends.
    assert (len(set(names)), found.num_rows) == (2, 1000)


@pytest.mark.parametrize("columns", [("offset",), ("log", "partition", "offset")], ids=str)
def test_scan_of_offsets_opens_no_segment(store: Path, columns: tuple[str, ...]) -> None:
    with opened_files(".segment") as names:
        found = scan(store, [["offset", ">=", [1500]]], *columns)
    assert names == []
    assert found.column("offset").to_pylist() == list(range(1500, 2500))
    assert found.column(0).to_pylist()[0] == (LOG if len(columns) > 1 else 1500)
