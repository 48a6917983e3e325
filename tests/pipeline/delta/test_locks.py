"""A lock has one holder, and none after its process."""

from pathlib import Path

import pytest

from timestone_pipeline.delta.locks import exclusively
from timestone_pipeline.errors import Busy


def test_lock_has_one_holder(tmp_path: Path) -> None:
    lock = tmp_path / "new" / "X.lock"
    with exclusively(lock, busy="no"), pytest.raises(Busy, match="no"), exclusively(lock, busy="no"):
        pass
    with exclusively(lock, busy="no"):
        pass
