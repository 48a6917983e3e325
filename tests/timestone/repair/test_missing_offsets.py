"""The expected offsets of a log, and the reasons why some are missing."""

from dataclasses import dataclass, field
from typing import Any, cast

from timestone.index import Checkpoint, IndexHeader
from timestone.recovery.record_verifier import Proofs, UnprovenRange
from timestone.repair.missing_offsets import MissingOffsets
from timestone.repair.offset_ranges import OffsetRanges
from timestone.repair.segment_fragments import IndexPages, SegmentFragments


@dataclass
class Heard:
    """What `MissingOffsets` looks at of `Proofs`."""

    end_offset: int
    unproven: list[UnprovenRange] = field(default_factory=list)
    source: Any = None

    def __post_init__(self) -> None:
        self.source = type("Source", (), {"aside": False})


def segment(
    base: int, *, epoch: int | None = 0, durable: int = 0, index: bool = True, data: bool = True
) -> SegmentFragments:
    remains = SegmentFragments(base, 7)
    remains.has_index, remains.has_segment = index, data
    if index:
        header = None if epoch is None else IndexHeader(7, base, 1, epoch, bytes(16))
        checkpoint = Checkpoint(1, durable, 0, base + 1000)
        remains.indexes.append(IndexPages(cast(Any, None), False, header, checkpoint, None))
    return remains


def losses(
    remains: list[SegmentFragments], proven: list[tuple[int, int]], heard: dict[int, Heard] | None = None
) -> list[tuple[int, int, str]]:
    by_base = {one.base_offset: one for one in remains}
    proofs = {base: [cast(Proofs, heard[base])] if heard and base in heard else [] for base in by_base}
    found = MissingOffsets(by_base, proofs).losses(OffsetRanges(proven))
    return [(loss.first, loss.end, loss.reason) for loss in found]


def test_complete_log_has_no_missing_offsets() -> None:
    assert losses([segment(0, durable=10), segment(10, durable=5)], [(0, 15)]) == []


def test_gap_is_a_loss_within_an_epoch_and_not_between_epochs() -> None:
    assert losses([segment(0, durable=10), segment(20, durable=5)], [(0, 10), (20, 25)]) == [
        (10, 20, "it is in no file")
    ]
    assert losses([segment(0, durable=10), segment(20, epoch=1, durable=5)], [(0, 10), (20, 25)]) == []


def test_unknown_epoch_lies_between_its_neighbours() -> None:
    before, behind = segment(0, durable=10), segment(20, durable=5)
    unknown = segment(10, epoch=None)
    assert losses([before, unknown, behind], [(0, 10), (20, 25)]) == [(10, 20, "it is in no file")]
    later = segment(20, epoch=1, durable=5)
    assert losses([before, unknown, later], [(0, 10), (20, 25)]) == [], "the rise may have been anywhere"
    assert losses([segment(0, epoch=None), segment(20)], [(20, 21)]) == [(0, 20, "it is in no file")]


def test_missing_offsets_name_the_missing_files() -> None:
    lost_index = [segment(0, durable=10), segment(10, index=False), segment(20, durable=1)]
    assert losses(lost_index, [(0, 10), (20, 21)]) == [(10, 20, "the index is missing")]
    lost_data = [segment(0, durable=10, data=False), segment(10, durable=1)]
    assert losses(lost_data, [(10, 11)]) == [(0, 10, "the segment file is missing")]


def test_ranges_are_split_where_the_damage_changes_and_where_durability_ends() -> None:
    heard = {
        0: Heard(12, [UnprovenRange(2, 4, "one"), UnprovenRange(4, 5, "other"), UnprovenRange(7, 10, "one")])
    }
    assert losses([segment(0, durable=9)], [(0, 2), (5, 7), (10, 12)], heard) == [
        (2, 4, "one"),
        (4, 5, "other"),
        (7, 9, "one"),
        (9, 10, "one; never acknowledged as synced"),
    ]


def test_records_behind_the_end_of_a_short_index_are_missing() -> None:
    assert losses([segment(0, durable=9)], [(0, 5)], {0: Heard(5)}) == [(5, 9, "behind the end of the index")]


def test_quarantined_segments_are_not_expected() -> None:
    assert losses([segment(0, index=False, data=False), segment(10, durable=1)], [(10, 11)]) == []
