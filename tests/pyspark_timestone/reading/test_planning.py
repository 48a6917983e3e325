"""Cutting ranges into tasks and sharing a limit among partitions."""

from hypothesis import given
from hypothesis import strategies as st

from pyspark_timestone.offsets import LogPartition, OffsetRange
from pyspark_timestone.reading.planning import cut, limited, within

A, B = LogPartition("a", 0), LogPartition("b", 0)
MANY = 1 << 60

bounds_of_a_log = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 200)), min_size=1, max_size=6).map(
    lambda pairs: [
        (base, base + pairs[number][1])
        for number, base in enumerate(
            sum(gap for gap, _ in pairs[: number + 1]) + sum(size for _, size in pairs[:number])
            for number in range(len(pairs))
        )
    ]
)


def test_cut_ends_at_each_large_segment() -> None:
    bounds = [(number * 500, number * 500 + 500) for number in range(3)]
    pieces = cut([OffsetRange(A, 5, 1200)], {A: bounds}, largest=MANY, least_count=1)
    assert pieces == [OffsetRange(A, 5, 500), OffsetRange(A, 500, 1000), OffsetRange(A, 1000, 1200)]


def test_cut_joins_small_segments_that_meet() -> None:
    bounds = [(number * 50, number * 50 + 50) for number in range(30)]
    pieces = cut([OffsetRange(A, 10, 1190)], {A: bounds}, largest=MANY, least_count=1)
    assert pieces == [OffsetRange(A, 10, 500), OffsetRange(A, 500, 1000), OffsetRange(A, 1000, 1190)]
    assert len(cut([OffsetRange(A, 0, 1000)], {A: bounds}, largest=100, least_count=1)) == 10
    left_out = {A: [*bounds[:5], *bounds[9:]]}  # by their topics
    assert cut([OffsetRange(A, 0, 700)], left_out, largest=MANY, least_count=1) == [
        OffsetRange(A, 0, 250),
        OffsetRange(A, 450, 700),
    ]


def test_cut_leaves_out_what_a_power_loss_left_empty() -> None:
    pieces = cut([OffsetRange(A, 5, 205)], {A: [(0, 10), (200, 210)]}, largest=MANY, least_count=1)
    assert pieces == [OffsetRange(A, 5, 10), OffsetRange(A, 200, 205)]


def test_cut_of_nothing_is_nothing() -> None:
    assert cut([OffsetRange(A, 7, 7)], {A: [(0, 10)]}, largest=MANY, least_count=8) == []


def test_cut_splits_one_segment_into_equal_parts() -> None:
    pieces = cut([OffsetRange(A, 0, 10)], {A: [(0, 10)]}, largest=MANY, least_count=3)
    assert pieces == [OffsetRange(A, 0, 3), OffsetRange(A, 3, 6), OffsetRange(A, 6, 10)]


def test_cut_splits_the_largest_segments_first_and_makes_no_more_parts_than_were_asked_for() -> None:
    bounds = [(0, 1000), (1000, 2000), (2000, 2500)]
    pieces = cut([OffsetRange(A, 0, 2500)], {A: bounds}, largest=MANY, least_count=7)
    assert [piece.end - piece.start for piece in pieces] == [333, 333, 334, 333, 333, 334, 500]


@given(
    bounds=bounds_of_a_log,
    start=st.integers(0, 500),
    length=st.integers(0, 800),
    largest=st.integers(1, 300),
    least_count=st.integers(1, 20),
)
def test_cut_keeps_every_offset_once_and_in_order(
    bounds: list[tuple[int, int]], start: int, length: int, largest: int, least_count: int
) -> None:
    whole = OffsetRange(A, start, start + length)
    pieces = cut([whole], {A: bounds}, largest=largest, least_count=least_count)
    offsets = [offset for piece in pieces for offset in range(piece.start, piece.end)]
    assert offsets == [
        offset for base, end in bounds for offset in range(max(base, start), min(end, whole.end))
    ]
    assert all(piece.start < piece.end <= piece.start + largest for piece in pieces)
    assert min(least_count, len(offsets)) <= len(pieces)
    needed = sum(-(-(piece.end - piece.start) // largest) for piece in within(whole, bounds))
    assert len(pieces) <= max(needed, min(least_count, len(offsets)))


def test_limited_without_a_limit_reads_all() -> None:
    assert limited({A: 0, B: 5}, {A: 10, B: 5}, None) == {A: 10, B: 5}


def test_limited_gives_by_what_is_waiting() -> None:
    assert limited({A: 0, B: 0}, {A: 900, B: 100}, 100) == {A: 90, B: 10}


def test_limited_starves_no_small_partition() -> None:
    assert limited({A: 0, B: 0}, {A: 1_000_000, B: 1}, 10) == {A: 9, B: 1}


def test_limited_lets_partitions_take_turns_when_there_is_not_one_offset_for_each() -> None:
    keys = [LogPartition("log", number) for number in range(5)]
    start = dict.fromkeys(keys, 0)
    end = dict.fromkeys(keys, 100)
    served = set()
    for _ in range(5):
        reached = limited(start, end, 1)
        served |= {key for key in keys if reached[key] > start[key]}
        start = reached
    assert served == set(keys)


@given(
    waiting=st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 10_000)), min_size=1, max_size=8),
    limit=st.integers(1, 20_000),
)
def test_limited_never_exceeds_its_limit_and_always_gets_on(
    waiting: list[tuple[int, int]], limit: int
) -> None:
    keys = [LogPartition("log", number) for number in range(len(waiting))]
    start = {key: first for key, (first, _) in zip(keys, waiting, strict=True)}
    end = {key: first + count for key, (first, count) in zip(keys, waiting, strict=True)}
    reached = limited(start, end, limit)
    taken = {key: reached[key] - start[key] for key in keys}
    total = sum(count for _, count in waiting)
    assert all(0 <= taken[key] <= end[key] - start[key] for key in keys)
    assert sum(taken.values()) == min(limit, total)
    if limit >= len(keys):
        assert all(taken[key] > 0 for key in keys if end[key] > start[key])
