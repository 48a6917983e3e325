"""How far the opening of a store is: for whoever waits for it, and for the log."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

Progress = Callable[[str, int, int], None]
"""Called with a log's folder name, the segments looked at and how many there are."""

_LOGGER = logging.getLogger("timestone")
_PATIENCE_S = 1.0
"""What takes no longer needs no words."""
_LINE_S = 5.0
"""Between two lines of the log."""


class OpeningProgress:
    """Tells nobody anything for a second; then the caller each time, and the log every few seconds."""

    def __init__(
        self, path: Path, told: Progress | None, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._told = told
        self._clock_s = clock_s
        self._began_s = clock_s()
        self._next_line_s = self._began_s + _PATIENCE_S
        self._place = ""

    def begin(self, number: int, count: int) -> None:
        """The next log is this one of so many."""
        self._place = f"log {number} of {count}, " if count > 1 else ""

    def __call__(self, folder: str, done: int, count: int) -> None:
        """So many of the segments of a log have been looked at, or repaired."""
        now_s = self._clock_s()
        if now_s < self._began_s + _PATIENCE_S:
            return
        if self._told is not None:
            self._told(folder, done, count)
        if now_s >= self._next_line_s:
            self._next_line_s = now_s + _LINE_S
            _LOGGER.info(
                "opening %s: %s%s, %d of %d segments looked at, %.0f s so far",
                self._path,
                self._place,
                folder,
                done,
                count,
                now_s - self._began_s,
            )
