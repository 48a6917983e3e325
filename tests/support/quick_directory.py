"""A directory for stores that live for milliseconds: in memory where the system has such a place."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def quick_directory(tmp_path: Path) -> Iterator[Path]:
    """An empty directory on a memory file system if there is one: opening thousands of stores needs no real disk."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    path = Path(tempfile.mkdtemp(prefix="timestone-", dir=MEMORY))
    try:
        yield path
    finally:
        shutil.rmtree(path)
