"""An hour keeps the peaks of its gauges."""

from timestone.metrics.metric import Metric, metric
from timestone_cli.server.hours import Hours

HOUR_US = 3_600_000_000


def sample(value: float) -> list[Metric]:
    return [
        metric("connections", "gauge", "Connections.", value),
        metric("publishes", "counter", "Publishes.", value),
        Metric("lag", "gauge", "Lag.", [({"reader": "r"}, 2 * value)]),
    ]


def test_an_hour_has_minimum_mean_and_maximum_of_gauges_when_the_next_one_begins() -> None:
    hours = Hours()
    for minute, value in ((0, 4), (20, 1), (59, 10)):
        assert hours.add(sample(value), 5 * HOUR_US + minute * 60_000_000) is None
    assert hours.add(sample(7), 6 * HOUR_US) == {
        "from_us": 5 * HOUR_US,
        "samples": 3,
        "gauges": {
            "connections": {"min": 1, "mean": 5, "max": 10},
            'lag{reader="r"}': {"min": 2, "mean": 10, "max": 20},
        },
    }
    rest = hours.take()
    assert rest is not None and (rest["from_us"], rest["gauges"]["connections"]["max"]) == (6 * HOUR_US, 7)
    assert hours.take() is None


def test_a_gauge_counts_only_the_samples_that_have_it() -> None:
    hours = Hours()
    hours.add([], 0)
    hours.add(sample(3), 1)
    found = hours.take()
    assert found is not None and found["samples"] == 2
    assert found["gauges"]["connections"] == {"min": 3, "mean": 3, "max": 3}
