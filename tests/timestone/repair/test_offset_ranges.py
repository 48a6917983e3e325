"""Ranges of offsets compared with a plain set."""

from hypothesis import given
from hypothesis import strategies as st

from timestone.repair.offset_ranges import OffsetRanges

RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)).map(sorted).map(tuple), max_size=20)


@given(RANGES, st.integers(0, 40), st.integers(0, 40))
def test_ranges_equal_a_set_of_offsets(ranges: list[tuple[int, int]], first: int, end: int) -> None:
    found = OffsetRanges(ranges)
    offsets = {offset for low, high in ranges for offset in range(low, high)}
    assert {offset for low, high in found for offset in range(low, high)} == offsets
    assert len(found) == len(offsets)
    flat = [edge for pair in found for edge in pair]
    assert flat == sorted(set(flat)), "sorted, and no two touch"
    gaps = list(found.missing(first, end))
    assert all(low < high for low, high in gaps)
    assert [offset for low, high in gaps for offset in range(low, high)] == [
        offset for offset in range(first, end) if offset not in offsets
    ]
