import os
import signal
from pathlib import Path

import pytest

from timestone_bench.errors import BenchmarkError
from timestone_bench.working_directory import working_directory


def test_directory_is_gone_afterwards(tmp_path: Path) -> None:
    with working_directory(tmp_path) as directory:
        (directory / "file").write_bytes(b"x")
        assert directory.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_being_asked_to_end_is_like_ctrl_c_and_cleans_up(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), working_directory(tmp_path):
        os.kill(os.getpid(), signal.SIGTERM)
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_missing_parent_is_reported(tmp_path: Path) -> None:
    with (
        pytest.raises(BenchmarkError, match="missing is not a directory"),
        working_directory(tmp_path / "missing"),
    ):
        pass
