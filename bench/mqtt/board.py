"""How far the slowest subscriber is, known to all processes of a run: what a publisher holds back for."""

from pathlib import Path

import numpy as np


class Board:
    """One number a process, in a file that all of them map. Each writes its own and reads all."""

    def __init__(self, path: Path, slot: int) -> None:
        self._counts = np.memmap(path, np.int64, "r+")
        self._slot = slot

    @staticmethod
    def create(path: Path, slots: int) -> None:
        """A board for so many processes that have subscribers."""
        path.write_bytes(bytes(8 * slots))

    def post(self, count: int) -> None:
        """What the slowest subscriber of this process has received."""
        self._counts[self._slot] = count

    def slowest(self) -> int:
        """The least of all processes."""
        return int(self._counts.min())
