import json

import pytest

from tests.bench.results import RESULT

ROWS = {row.name: row for row in RESULT.rows}


def test_a_row_is_the_median_of_its_repeats() -> None:
    row = ROWS["pwrite 1"]
    assert (row.records_per_s.low, row.records_per_s.median, row.records_per_s.high) == (2500, 5000, 10_000)
    assert row.mb_per_s.median == pytest.approx(5.0)
    assert row.mb_per_s_synced is not None
    assert row.mb_per_s_synced.median == pytest.approx(2.5)
    assert row.ratio is None


def test_the_ratio_is_taken_within_each_repeat() -> None:
    """The medians alone say 0.40; but run beside run it was 0.50, 0.25 and 0.80 of the raw row."""
    ratio = ROWS["append 1"].ratio
    assert ratio is not None
    assert (ratio.low, ratio.median, ratio.high) == pytest.approx((0.25, 0.5, 0.8))


def test_latencies_are_over_all_calls_of_all_repeats() -> None:
    call_us = ROWS["append 1"].call_us
    assert list(call_us) == ["p50", "p95", "p99", "p99.9", "max"]
    assert call_us["p50"] == pytest.approx(50_000)
    assert call_us["max"] == pytest.approx(80_000)


def test_json_holds_everything_under_the_names_of_the_fields() -> None:
    found = json.loads(json.dumps(RESULT.to_json()))
    assert found.keys() == {"benchmark", "parameters", "environment", "warnings", "rows"}
    assert found["environment"]["filesystem"] == "ext4"
    assert found["rows"][1]["ratio"] == {"median": 0.5, "min": 0.25, "max": 0.8}
    assert found["rows"][2]["mb_per_s_synced"] is None
