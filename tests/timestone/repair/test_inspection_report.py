import json
from dataclasses import replace
from pathlib import Path

import pytest

import timestone
from timestone.repair.inspection import inspect_store
from timestone.repair.inspection_report import StoreReport


@pytest.fixture
def report(quick_directory: Path) -> StoreReport:
    with timestone.open(quick_directory / "data", min_free_bytes=0) as store:
        store.log("telemetry").append_many([b"x"] * 8)
    return inspect_store(quick_directory / "data")


def test_report_is_plain_json(report: StoreReport) -> None:
    (log,) = json.loads(json.dumps(report.to_json()))["logs"]
    assert log["segments"][0]["records"] == 8
    assert log["id"] == f"{report.logs[0].id:016x}", "a u64 is no number to those who read JSON with 53 bits"


def test_lost_records_of_a_segment_are_the_durable_ones_that_are_missing(report: StoreReport) -> None:
    (segment,) = report.logs[0].segments
    assert (segment.checkpoint, segment.lost_durable) == (8, 0)
    assert replace(segment, next_offset=5).lost_durable == 3
    assert replace(segment, checkpoint=3).lost_durable == 0
