from pathlib import Path

from timestone.disk.files import Files
from timestone.format.folder_listing import base_offsets, known_missing, listed_bases


def test_base_offsets_pair_the_files_and_name_the_strangers(quick_directory: Path) -> None:
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


def test_what_retention_has_deleted_is_not_there_although_some_of_its_files_are() -> None:
    present = [
        "00000000000000000000.segment",
        "00000000000000000005.index.deleted",
        "00000000000000000005.segment",
        "00000000000000000009.2.segment",
        "00000000000000000009.index",
    ]
    assert listed_bases(present) == ([9], [])
    assert listed_bases([]) == ([], [])


def test_lost_offsets_are_listed_in_order_and_are_no_strangers() -> None:
    present = [f"{30:020d}-{99:020d}.missing", "topics", f"{10:020d}-{20:020d}.missing"]
    assert known_missing(present) == [(10, 20), (30, 99)]
    assert listed_bases(present) == ([], [])
