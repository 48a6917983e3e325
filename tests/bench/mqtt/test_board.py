from pathlib import Path

from timestone_bench.mqtt.board import Board


def test_the_slowest_process_counts_for_all(tmp_path: Path) -> None:
    Board.create(tmp_path / "board", 2)
    first, second = Board(tmp_path / "board", 0), Board(tmp_path / "board", 1)
    first.post(9)
    assert second.slowest() == 0
    second.post(5)
    assert first.slowest() == second.slowest() == 5
