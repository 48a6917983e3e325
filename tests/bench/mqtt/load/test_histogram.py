"""Percentiles within a percent, however many there are."""

import json

import numpy as np
import numpy.typing as npt
import pytest

from timestone_bench.mqtt.load.histogram import Histogram, Periods


def filled(values_ns: npt.NDArray[np.int64]) -> Histogram:
    histogram = Histogram()
    for part in np.array_split(values_ns, 7):
        histogram.add(part)
    return histogram


def test_percentiles_are_within_a_bucket_of_the_true_ones() -> None:
    values = np.random.default_rng(7).lognormal(12, 1.5, 50_000).astype(np.int64)
    summary = filled(values).summary_us()
    for name, percent in {"p50": 50, "p95": 95, "p99": 99, "p99.9": 99.9}.items():
        assert summary[name] == pytest.approx(np.percentile(values, percent) / 1000, rel=0.012)
    assert summary["max"] == values.max() / 1000


def test_two_processes_together_say_what_one_would_have_said() -> None:
    values = np.arange(1, 20_001) * 1000
    parts = [filled(values[::2]), filled(values[1::2])]
    merged = Histogram.merged(Histogram.from_json(json.loads(json.dumps(part.to_json()))) for part in parts)
    assert merged.count == 20_000
    assert merged.summary_us() == filled(values).summary_us()


def test_without_durations_there_is_nothing_to_say() -> None:
    assert Histogram().summary_us() == {}


def add(periods: Periods, *due_ns: int) -> None:
    periods.add(np.array(due_ns), np.arange(1, len(due_ns) + 1) * 1000)


def test_a_latency_belongs_to_the_period_in_which_its_message_was_due() -> None:
    periods = Periods(100)
    periods.start_ns = 1000
    add(periods, 1299, 1000, 1099, 1100)
    add(periods, 1200)
    assert [one.count for one in periods.latencies] == [2, 1, 2]
    assert [one.summary_us()["max"] for one in periods.latencies] == [3.0, 4.0, 1.0]


def test_without_periods_the_run_is_one() -> None:
    periods = Periods()
    add(periods, 5, 1 << 40)
    assert [one.count for one in periods.latencies] == [2]
