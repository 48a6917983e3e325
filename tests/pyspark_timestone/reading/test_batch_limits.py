"""How much one batch reads."""

from hypothesis import given
from hypothesis import strategies as st

from pyspark_timestone.offsets import LogPartition
from pyspark_timestone.options.read_options import TriggerLimits
from pyspark_timestone.reading.batch_limits import Patience, end_within

A, B = LogPartition("a", 0), LogPartition("b", 0)
EVEN = {A: [(0, 100, 1000), (100, 200, 10_000)], B: [(0, 100, 100)]}


def test_without_limits_all_is_read() -> None:
    assert end_within(TriggerLimits(), {A: 5}, {A: 150}, EVEN) == {A: 150}


def test_bytes_are_counted_with_the_average_of_each_segment() -> None:
    def end(most_bytes: int, start: int = 0) -> int:
        return end_within(TriggerLimits(most_bytes=most_bytes), {A: start}, {A: 200}, EVEN)[A]

    assert end(500) == 50
    assert end(1500) == 105
    assert end(1500, start=50) == 110
    assert end(100_000) == 200


def test_a_record_that_is_larger_than_the_limit_is_read_alone() -> None:
    assert end_within(TriggerLimits(most_bytes=1), {A: 150}, {A: 200}, EVEN) == {A: 151}


def test_the_tighter_of_two_limits_counts() -> None:
    assert end_within(TriggerLimits(most_records=30, most_bytes=500), {A: 0}, {A: 200}, EVEN) == {A: 30}
    assert end_within(TriggerLimits(most_records=90, most_bytes=500), {A: 0}, {A: 200}, EVEN) == {A: 50}


def test_bytes_are_shared_among_partitions_and_none_starves() -> None:
    reached = end_within(TriggerLimits(most_bytes=550), {A: 0, B: 0}, {A: 100, B: 100}, EVEN)
    assert reached == {A: 50, B: 50}


def test_shares_that_are_smaller_than_a_record_are_put_together() -> None:
    logs = [LogPartition("a", number) for number in range(100)]
    reached = end_within(
        TriggerLimits(most_bytes=1000),
        dict.fromkeys(logs, 0),
        dict.fromkeys(logs, 10),
        {key: [(0, 10, 200)] for key in logs},
    )
    assert sum(reached.values()) == 50


def test_large_records_are_read_beside_a_log_that_always_has_more() -> None:
    start, sizes = {A: 0, B: 0}, {A: [(0, 3, 3000)], B: [(0, 10_000, 10_000)]}
    for _ in range(3):
        start = end_within(TriggerLimits(most_bytes=800), start, {A: 3, B: start[B] + 5000}, sizes)
    assert start[A] == 3


@given(
    start=st.integers(0, 199),
    count=st.integers(1, 200),
    most=st.integers(1, 12_000),
    sizes=st.lists(st.integers(0, 5000), min_size=4, max_size=4),
)
def test_there_is_always_progress_and_never_more_than_the_limit(
    start: int, count: int, most: int, sizes: list[int]
) -> None:
    log = [(50 * number, 50 * number + 50, size) for number, size in enumerate(sizes)]
    end = min(200, start + count)
    reached = end_within(TriggerLimits(most_bytes=most), {A: start}, {A: end}, {A: log})[A]
    assert start < reached <= end

    def below(offset: int) -> float:
        return sum(size * min(max(offset - base, 0), 50) / 50 for base, _, size in log)

    assert reached == start + 1 or below(reached) - below(start) <= most + 2


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_batch_waits_for_enough_records_or_for_the_delay() -> None:
    clock = Clock()
    patience = Patience(TriggerLimits(least_records=10, delay_s=60), now_s=clock)
    assert not patience.waits(3), "the first one does not"
    assert patience.waits(9)
    assert not patience.waits(10)
    clock.now_s += 59
    assert patience.waits(9)
    clock.now_s += 1
    assert not patience.waits(9)
    assert patience.waits(9)


def test_without_a_least_number_nothing_waits() -> None:
    patience = Patience(TriggerLimits(), now_s=Clock())
    assert not any(patience.waits(1) for _ in range(3))
