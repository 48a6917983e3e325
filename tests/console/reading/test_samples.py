import itertools
import time
from pathlib import Path

import timestone
from tests.support.console_client import write_samples
from timestone.metrics.histogram import BOUNDS_S
from timestone.view import view_store
from timestone_console.reading.samples import Change, Samples, changes, highest, percentile, total

MINUTE_US = 60_000_000


def test_samples_are_chosen_at_equal_distances_and_the_newest_is_among_them(tmp_path: Path) -> None:
    write_samples(tmp_path / "data", 100)
    with view_store(tmp_path / "data") as view:
        samples = Samples(view)
        now_us = time.time_ns() // 1000
        whole = samples.last(100)
        assert len(whole) == 100 and samples.last() == whole[-1:]
        chosen = samples.between(now_us - 100 * MINUTE_US, now_us, 10)
        assert len(chosen) <= 11 and chosen[-1] == whole[-1]
        distances = {later.time_us - one.time_us for one, later in itertools.pairwise(chosen)}
        assert len(distances) == 1


def test_rates_between_any_two_samples_equal_arithmetic_over_all(tmp_path: Path) -> None:
    write_samples(tmp_path / "data", 50, rise=30)
    with view_store(tmp_path / "data") as view:
        whole = Samples(view).last(50)
    name = "timestone_mqtt_publishes_received_total"
    ten = Change(whole[0], whole[-1])
    assert ten.rise(name) == sum(one.rise(name) or 0 for one in changes(whole) if one) == 49 * 30
    assert abs((ten.rate(name) or 0) - 3.0) < 0.01
    assert total(whole[-1], "timestone_mqtt_dropped_publishes_total") == 49
    assert total(whole[-1], 'timestone_mqtt_dropped_publishes_total{reason="x"}') is None
    assert ten.rate("nonsense_total") is None and ten.observed("nonsense") == []


def test_start_of_the_server_is_a_gap(tmp_path: Path) -> None:
    write_samples(tmp_path / "data", 4, starts=2)
    with view_store(tmp_path / "data") as view:
        assert [one is None for one in changes(Samples(view).last(4))] == [False, True, False]


def test_store_without_samples_has_none(tmp_path: Path) -> None:
    timestone.open(tmp_path / "data").close()
    with timestone.open(tmp_path / "data") as store:
        store.log("other").append(b"x")
    with view_store(tmp_path / "data") as view:
        assert Samples(view).last() == [] and Samples(view).between(0, 2**60, 10) == []


def test_percentile_is_the_bound_of_its_bucket() -> None:
    counts = [0] * (len(BOUNDS_S) + 1)
    counts[3], counts[5] = 98, 2
    assert percentile(counts, 0.5) == BOUNDS_S[3] and percentile(counts, 0.99) == BOUNDS_S[5] == highest(
        counts
    )
    assert percentile([], 0.5) is None and percentile([0] * len(counts), 0.5) is None
    counts[-1] = 1000  # longer than the last bound
    assert percentile(counts, 0.99) is None
