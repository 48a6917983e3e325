"""Progress of the slowest subscriber, shared by all processes of a run: publishers wait for it."""

from pathlib import Path

import numpy as np


class SharedProgress:
    """One number for each process, in a file that all of them map. Each process writes its own and reads all."""

    def __init__(self, path: Path, slot: int) -> None:
        self._counts = np.memmap(path, np.int64, "r+")
        self._slot = slot

    @staticmethod
    def create(path: Path, slots: int) -> None:
        """Create the file for the number of processes that have subscribers."""
        path.write_bytes(bytes(8 * slots))

    def post(self, count: int) -> None:
        """Store how many messages the slowest subscriber of this process has received."""
        self._counts[self._slot] = count

    def slowest(self) -> int:
        """Return the minimum of all processes."""
        return int(self._counts.min())
