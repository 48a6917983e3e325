"""Bare processes that acknowledge messages."""

from pathlib import Path

from timestone_bench.cluster.bare_replication import (
    ENTRY_BYTES,
    MESSAGE_BYTES,
    acknowledgements_us,
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


def test_percentiles_are_those_of_all_messages() -> None:
    assert percentiles(range(1, 101)) == (50.5, 100)
