"""Histograms against the list of all values."""

import itertools
from bisect import bisect_right

from hypothesis import given
from hypothesis import strategies as st

from timestone.metrics.histogram import BOUNDS_S, Histogram

DURATIONS_NS = st.integers(0, 10**12) | st.sampled_from(
    [round(bound * 1e9) + step for bound in BOUNDS_S for step in (-1, 0, 1)]
)
OBSERVED = st.lists(st.tuples(DURATIONS_NS, st.integers(1, 1000)))


def histogram_of(observed: list[tuple[int, int]]) -> Histogram:
    histogram = Histogram()
    for duration_ns, count in observed:
        histogram.observe(duration_ns, count)
    return histogram


def test_bounds_are_powers_of_two_from_16_microseconds_to_134_seconds() -> None:
    assert (BOUNDS_S[0], BOUNDS_S[-1], len(BOUNDS_S)) == (0.000016, 134.217728, 24)
    assert all(later == 2 * earlier for earlier, later in itertools.pairwise(BOUNDS_S))


@given(OBSERVED)
def test_a_histogram_counts_what_the_list_of_all_values_has_up_to_each_bound(
    observed: list[tuple[int, int]],
) -> None:
    histogram = histogram_of(observed)
    every = sorted(duration_ns for duration_ns, count in observed for _ in range(count))
    bounds_ns = [round(bound * 1e9) for bound in BOUNDS_S]
    assert histogram.cumulative() == [*(bisect_right(every, bound) for bound in bounds_ns), len(every)]
    assert (histogram.count, histogram.sum_ns) == (len(every), sum(every))


@given(OBSERVED, OBSERVED)
def test_added_histograms_equal_one_of_all_values(
    some: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    added = histogram_of(some)
    added.add(histogram_of(others))
    assert added.cumulative() == histogram_of(some + others).cumulative()
    assert added.sum_ns == histogram_of(some + others).sum_ns
