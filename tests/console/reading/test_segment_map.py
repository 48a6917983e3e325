import itertools

from timestone.repair.inspection_report import SegmentReport
from timestone_console.reading.segment_map import CELLS_MOST, cells, gaps


def segment(
    base_offset: int, next_offset: int, state: str = "sealed", stored_bytes: int = 10
) -> SegmentReport:
    return SegmentReport(
        base_offset=base_offset,
        next_offset=next_offset,
        records=next_offset - base_offset,
        bytes=10,
        stored_bytes=stored_bytes,
        index_bytes=1,
        first_timestamp_us=base_offset + 1,
        last_timestamp_us=next_offset,
        state=state,
        checkpoint=0,
        topics=1,
        damaged_offsets=(),
        lost_records=0,
        lost_bytes=0,
        reason="",
    )


def test_few_segments_have_a_cell_each_and_gaps_between_them() -> None:
    found = [segment(0, 5), segment(5, 7, stored_bytes=9), segment(10, 12, "unclosed")]
    shown = [(one.state, one.base_offset, one.next_offset, one.records) for one in cells(found, found[-1])]
    assert shown == [("sealed", 0, 5, 5), ("compressed", 5, 7, 2), ("gap", 7, 10, 0), ("growing", 10, 12, 2)]
    assert gaps(found) == [(7, 10)]
    assert [one.state for one in cells(found, None)][-1] == "unclosed"
    assert list(cells([], None)) == []


def test_many_segments_share_cells_that_have_their_sums_and_the_worst_state() -> None:
    found = [segment(3 * n, 3 * n + 3, "damaged" if n == 777 else "sealed") for n in range(5000)]
    shown = list(cells(found, None))
    assert len(shown) <= CELLS_MOST
    assert all(before.next_offset == after.base_offset for before, after in itertools.pairwise(shown))
    assert (shown[0].base_offset, shown[-1].next_offset) == (0, 15000)
    assert sum(one.segments for one in shown) == 5000 and sum(one.records for one in shown) == 15000
    (bad,) = [one for one in shown if one.state == "damaged"]
    assert bad.base_offset <= 3 * 777 < bad.next_offset


def test_cells_are_bounded_when_every_segment_is_beside_a_gap() -> None:
    assert len(list(cells([segment(4 * n, 4 * n + 3) for n in range(5000)], None))) < 2500
