"""Wall clocks of processes that are wrong, and are set while they run: `wrong_clock.c`, loaded with LD_PRELOAD."""

import struct
from pathlib import Path

from tests.support.system_calls import build_library

SOURCE = Path(__file__).with_suffix(".c")


class WrongClock:
    """The wall clock of one or several processes. Without a compiler it is right, and cannot be set."""

    def __init__(self, file: Path, library: Path | None) -> None:
        """file: what the processes read. library: from `clock_library`."""
        self._file, self._library = file, library
        self.set(0)

    @property
    def prefix(self) -> list[str]:
        """Words in front of the command of a process."""
        if self._library is None:
            return []
        return ["env", f"LD_PRELOAD={self._library}", f"WRONG_CLOCK={self._file}"]

    def set(self, wrong_s: int) -> None:
        """Have the clock be wrong by so many seconds from now on."""
        self._file.touch()
        with self._file.open("r+b", buffering=0) as file:  # in place: processes have mapped it
            file.write(struct.pack("q", wrong_s))


def clock_library(folder: Path) -> Path | None:
    """Compile the library; None without a compiler."""
    return build_library(folder, SOURCE)
