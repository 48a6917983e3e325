"""Memory is touched by a file that is gone afterwards."""

from pathlib import Path

from timestone_bench.free_memory import touch_free_memory


def test_touching_free_memory_leaves_nothing_behind(tmp_path: Path) -> None:
    touch_free_memory(tmp_path, 3_000_000)
    assert list(tmp_path.iterdir()) == []
