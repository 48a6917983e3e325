"""A directory for short-lived stores: in memory if the system has such a place."""

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def quick_directory(tmp_path: Path) -> Iterator[Path]:
    """An empty directory on a memory file system if there is one: opening thousands of stores needs no real disk. A
    file that is left open, after any fault, is a leak: the test fails."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    path = Path(tempfile.mkdtemp(prefix="timestone-", dir=MEMORY))
    try:
        yield path
        leaked = open_below(path)
        assert not leaked, f"still open: {leaked}"
    finally:
        shutil.rmtree(path)


def open_below(path: Path) -> list[str]:
    """Return the files below a directory that this process has open, including removed ones."""
    if found := _targets_below(path):
        gc.collect()  # only then: it takes longer than most tests
        found = _targets_below(path)
    return found


def _targets_below(path: Path) -> list[str]:
    targets = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            targets.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            continue  # the descriptor that listed them
    return sorted(target for target in targets if target.startswith(f"{path}/"))
