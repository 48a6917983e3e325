from pathlib import Path

from timestone.disk.files import Files
from timestone.format.folder_listing import base_offsets, halves_aside, known_missing, listed_bases


def test_listing_pairs_files_by_base_offset_and_names_foreign_ones(quick_directory: Path) -> None:
    for name in (
        "00000000000000000000.index",
        "00000000000000000000.segment",
        "00000000000000000007.segment",
        "00000000000000000000.index.tmp",
        "00000000000000000003.segment.lost.2",
        "topics",
        "topics.lost",
        "failed-flush",
        "stranger",
        "8.index",
    ):
        (quick_directory / name).write_bytes(b"")
    assert base_offsets(Files(), quick_directory) == ([0, 7], ["8.index", "stranger"])


def test_listing_omits_deleted_segments_although_files_remain() -> None:
    present = [
        "00000000000000000000.segment",
        "00000000000000000005.index.deleted",
        "00000000000000000005.segment",
        "00000000000000000009.2.segment",
        "00000000000000000009.index",
    ]
    assert listed_bases(present) == ([9], [])
    assert listed_bases([]) == ([], [])


def test_listing_has_lost_offsets_in_order_and_not_as_foreign_files() -> None:
    present = [f"{30:020d}-{99:020d}.missing", "topics", f"{10:020d}-{20:020d}.missing"]
    assert known_missing(present) == [(10, 20), (30, 99)]
    assert listed_bases(present) == ([], [])


def test_listing_knows_a_quarantined_file_by_its_base_offset() -> None:
    present = [
        f"{5:020d}.index.lost",
        f"{7:020d}.segment",
        f"{9:020d}.index.tmp",
        f"{3:020d}.segment.lost.2",
        "topics",
    ]
    assert halves_aside(present) == {3, 5, 9}
