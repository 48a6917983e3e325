from typing import Any

from timestone.metrics.histogram import BOUNDS_S
from timestone.metrics.records import Durations, Sample
from timestone_cli.output.metrics_history import GAUGES, PERCENTILES, RATES, plot, steps

S = 1_000_000
BUCKETS = len(BOUNDS_S) + 1


def sample(at_s: int, published: int, *, started_s: int = 0, clients: int = 0, slow: int = 0) -> Sample:
    """Return a sample in which all but the `slow` publishes were acknowledged in the first bucket."""
    counts = (published - slow, *[0] * (BUCKETS - 2), slow)
    return Sample(
        at_s * S,
        started_s * S,
        "n",
        1000,
        {RATES["in_per_s"]: published, GAUGES["clients"]: clients},
        {PERCENTILES["acknowledge_p99_s"]: Durations(counts, 0.0)},
    )


def shown(found: list[dict[str, Any]], key: str) -> list[Any]:
    return [one[key] for one in found]


def test_steps_have_exact_rates_also_over_a_restart_and_null_where_no_sample_is() -> None:
    samples = [
        sample(90, 50),  # only the beginning of the first change
        sample(100, 100, clients=3),
        sample(110, 300, clients=2),
        sample(145, 10, started_s=140, clients=1),
        sample(150, 30, started_s=140),
    ]
    found = steps(samples, 95 * S, 20 * S, 4)
    assert shown(found, "time_us") == [95 * S, 115 * S, 135 * S, 155 * S]
    assert shown(found, "in_per_s") == [12.5, None, 3.0, None]
    assert shown(found, "clients") == [3, None, 1, None]
    assert shown(found, "samples") == [2, 0, 2, 0]


def test_percentile_is_that_of_the_step_and_not_since_the_start() -> None:
    samples = [sample(0, 1000), sample(10, 1100, slow=1), sample(20, 1200, slow=50)]
    found = steps(samples, 5 * S, 10 * S, 2)
    assert shown(found, "acknowledge_p99_s") == [BOUNDS_S[0], float("inf")]
    assert shown(found, "flush_p99_s") == [None, None]


def test_plot_scales_to_the_highest_value_and_leaves_gaps_blank() -> None:
    found = [{"in_per_s": value} for value in (0.0, None, 50.0, 100.0)]
    assert plot(found, "in_per_s") == "in/s      ▁ ▅█ most 100"
    assert plot([{"in_per_s": None}], "in_per_s") == "in/s        most 0"
