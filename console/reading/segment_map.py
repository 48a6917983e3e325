"""Segments of a log as a map whose size does not grow with their number."""

import itertools
from collections.abc import Iterator, Sequence

import msgspec

from timestone.repair.inspection_report import SegmentReport

CELLS_MOST = 300
_GAPS_MOST = 500
TROUBLE = ("damaged", "torn", "orphan")
_STATES = (*TROUBLE, "unclosed", "growing", "closed", "sealed", "compressed")
"""A cell of several segments has the first of these that one of them has."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """Segments side by side, or a gap. state: the worst of them; also `growing`, `compressed` and `gap`."""

    state: str
    base_offset: int
    next_offset: int
    segments: int
    records: int
    stored_bytes: int
    first_timestamp_us: int
    last_timestamp_us: int


def cells(segments: Sequence[SegmentReport], growing: SegmentReport | None) -> Iterator[Cell]:
    """Yield as many segments in each cell as are needed for `CELLS_MOST` of them; a gap begins a new one."""
    most = max(1, -(-len(segments) // CELLS_MOST))
    by_end = {end: first for first, end in gaps(segments)}
    joined: list[SegmentReport] = []
    for one in segments:
        if joined and (len(joined) == most or one.base_offset in by_end):
            yield _cell(joined, growing)
            joined = []
        if (first := by_end.get(one.base_offset)) is not None:
            yield Cell(
                state="gap",
                base_offset=first,
                next_offset=one.base_offset,
                segments=0,
                records=0,
                stored_bytes=0,
                first_timestamp_us=0,
                last_timestamp_us=0,
            )
        joined.append(one)
    if joined:
        yield _cell(joined, growing)


def _cell(joined: Sequence[SegmentReport], growing: SegmentReport | None) -> Cell:
    states = {"growing" if one is growing else _state(one) for one in joined}
    return Cell(
        state=min(states, key=_STATES.index),
        base_offset=joined[0].base_offset,
        next_offset=joined[-1].next_offset,
        segments=len(joined),
        records=sum(one.records for one in joined),
        stored_bytes=sum(one.stored_bytes for one in joined),
        first_timestamp_us=joined[0].first_timestamp_us,
        last_timestamp_us=joined[-1].last_timestamp_us,
    )


def _state(one: SegmentReport) -> str:
    return "compressed" if one.state == "sealed" and is_compressed(one) else one.state


def is_compressed(one: SegmentReport) -> bool:
    """Return whether the file of a segment is smaller than its records."""
    return one.stored_bytes < one.bytes


def gaps(segments: Sequence[SegmentReport]) -> list[tuple[int, int]]:
    """Return the first offsets [first, end) that lie between segments."""
    pairs = itertools.pairwise(segments)
    found = ((one.next_offset, next_one.base_offset) for one, next_one in pairs)
    return list(itertools.islice((gap for gap in found if gap[0] < gap[1]), _GAPS_MOST))
