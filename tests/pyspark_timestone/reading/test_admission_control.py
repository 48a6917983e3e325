"""Limits of a micro-batch and the trigger AvailableNow, without Spark."""

import json
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadMaxBytes, ReadMaxRows, ReadMinRows

from tests.support.spark import reader
from tests.support.stores import LOG, fill


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """2,500 records in three segments."""
    fill(tmp_path / "data", 2500)
    return tmp_path / "data"


def test_available_now_ends_when_records_keep_coming(store: Path) -> None:
    source = reader(store, startingOffsets="earliest")
    source.prepareForTriggerAvailableNow()
    fill(store, 500)
    fill(store, 5, log="new")
    end = source.initialOffset()
    reached = []
    while (following := source.latestOffset(end, ReadMaxRows(900))) != end:
        end = following
        reached.append(end[LOG]["0"])
    assert reached == [900, 1800, 2500]
    assert end["new"] == {"0": 0}


def test_batch_is_limited_when_bytes_are_given(store: Path) -> None:
    source = reader(store, startingOffsets="earliest", maxBytesPerTrigger="5000")
    assert source.getDefaultReadLimit() == ReadMaxBytes(5000)
    end, sizes = source.initialOffset(), []
    while (following := source.latestOffset(end, source.getDefaultReadLimit())) != end:
        sizes.append(following[LOG]["0"] - end[LOG]["0"])
        end = following
    assert sum(sizes) == 2500
    # The values are of 8 to 11 bytes.
    assert all(450 < size < 650 for size in sizes[:-1])


def test_batch_waits_for_its_least_number_unless_the_run_ends(store: Path) -> None:
    source = reader(store, startingOffsets="earliest", minOffsetsPerTrigger="100", maxTriggerDelay="1h")
    assert source.getDefaultReadLimit() == ReadMinRows(100)
    start = source.latestOffset(source.initialOffset(), ReadMinRows(100))
    assert start[LOG] == {"0": 2500}, "the first batch waits for nothing"
    fill(store, 99)
    assert json.dumps(source.latestOffset(start, ReadMinRows(100))) == json.dumps(start)
    fill(store, 1)
    assert source.latestOffset(start, ReadMinRows(100))[LOG] == {"0": 2600}
    run = reader(store, minOffsetsPerTrigger="100", maxTriggerDelay="1h")
    run.prepareForTriggerAvailableNow()
    following = run.latestOffset(start, ReadMinRows(100))
    fill(store, 5)
    assert following[LOG] == run.latestOffset(following, ReadMinRows(100))[LOG] == {"0": 2600}
