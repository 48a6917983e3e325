from pathlib import Path

from timestone_bench.mqtt.shared_progress import SharedProgress


def test_the_slowest_process_counts_for_all(tmp_path: Path) -> None:
    SharedProgress.create(tmp_path / "progress", 2)
    first, second = SharedProgress(tmp_path / "progress", 0), SharedProgress(tmp_path / "progress", 1)
    first.post(9)
    assert second.slowest() == 0
    second.post(5)
    assert first.slowest() == second.slowest() == 5
