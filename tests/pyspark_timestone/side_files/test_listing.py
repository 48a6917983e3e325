"""Which side files stand for segments: whole ones, of this very log."""

import logging
from pathlib import Path

import pytest

import timestone
from pyspark_timestone.side_files.keeper import SideFileKeeper
from pyspark_timestone.side_files.listing import side_files_within
from tests.support.stores import LOG, drop_first_segment, fill


def within(store: Path, start: int, end: int) -> list[int]:
    with timestone.view(store) as view:
        return [segment.base_offset for segment, _ in side_files_within(store, view.log(LOG), start, end)]


def test_segments_count_that_lie_in_the_range_as_a_whole(tmp_path: Path) -> None:
    fill(tmp_path, 4000)
    with SideFileKeeper(tmp_path) as keeper:
        keeper.run()
    assert within(tmp_path, 0, 4000) == [0, 1000, 2000, 3000]
    assert within(tmp_path, 1, 3999) == [1000, 2000]
    assert within(tmp_path, 1000, 2000) == [1000]
    drop_first_segment(tmp_path)
    assert within(tmp_path, 0, 4000) == [1000, 2000, 3000]


def test_what_is_missing_or_damaged_is_left_out_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path, 3000)
    with SideFileKeeper(tmp_path) as keeper:
        keeper.run()
    first, second, _ = sorted((tmp_path / "parquet" / "telemetry-0").iterdir())
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    with caplog.at_level(logging.WARNING):
        assert within(tmp_path, 0, 3000) == [2000]
    assert second.name in caplog.text and first.name not in caplog.text


def test_files_of_a_log_that_was_made_again_do_not_count(tmp_path: Path) -> None:
    fill(tmp_path / "old", 2000)
    with SideFileKeeper(tmp_path / "old") as keeper:
        keeper.run()
    fill(tmp_path / "new", 2000)
    (tmp_path / "old" / "parquet").rename(tmp_path / "new" / "parquet")
    assert within(tmp_path / "new", 0, 2000) == []
