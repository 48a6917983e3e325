"""Bare processes that acknowledge messages."""

from pathlib import Path

import pytest

from timestone_bench.cluster.bare_replication import (
    ENTRY_BYTES,
    MESSAGE_BYTES,
    acknowledgements_us,
    messages_per_s,
    percentiles,
)


def test_each_process_has_all_messages_when_they_are_acknowledged(tmp_path: Path) -> None:
    taken_us = acknowledgements_us(tmp_path / "bare", 5, 2)
    assert len(taken_us) == 5
    assert min(taken_us) > 0
    segments = list((tmp_path / "bare").glob("*.segment"))
    assert len(segments) == 3
    assert len({path.stat().st_size for path in segments}) == 1
    assert segments[0].stat().st_size % MESSAGE_BYTES == 0
    assert ENTRY_BYTES < MESSAGE_BYTES


@pytest.mark.parametrize("followers", [0, 2])
def test_each_process_has_all_messages_when_many_are_on_their_way(tmp_path: Path, followers: int) -> None:
    assert messages_per_s(tmp_path / "bare", 5000, followers, 100) > 0
    sizes = {path.stat().st_size for path in (tmp_path / "bare").glob("*.segment")}
    assert sizes == {5000 * MESSAGE_BYTES}


def test_percentiles_are_those_of_all_messages() -> None:
    assert percentiles(range(1, 101)) == (50.5, 100)
