"""Percentiles within a percent, however many there are."""

import json

import numpy as np
import numpy.typing as npt
import pytest

from timestone_bench.mqtt.load.histogram import Histogram


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
