"""A lock has one holder, and none after its process."""

from pathlib import Path

import pytest

from timestone_pipeline.errors import Busy
from timestone_pipeline.locks import exclusively


def test_lock_has_one_holder(tmp_path: Path) -> None:
    lock = tmp_path / "new" / "X.lock"
    with exclusively(lock, busy="no"), pytest.raises(Busy, match="no"), exclusively(lock, busy="no"):
        pass
    with exclusively(lock, busy="no"):
        pass
