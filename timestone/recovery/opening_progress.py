"""Progress of opening a store: reported to a callback and to the log."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

Progress = Callable[[str, int, int], None]
"""Called with the folder name of a log, the number of segments scanned and the number of all its segments."""

_LOGGER = logging.getLogger("timestone")
_PATIENCE_S = 1.0
"""An opening that takes less is not reported."""
_LINE_S = 5.0
"""Interval between two lines of the log."""


class OpeningProgress:
    """Reports nothing for the first second; then to the callback at every step and to the log every few seconds."""

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
        """Set the position of the next log among all logs: `number` of `count`."""
        self._place = f"log {number} of {count}, " if count > 1 else ""

    def __call__(self, folder: str, done: int, count: int) -> None:
        """Report that `done` of `count` segments of a log are scanned or repaired."""
        now_s = self._clock_s()
        if now_s < self._began_s + _PATIENCE_S:
            return
        if self._told is not None:
            self._told(folder, done, count)
        if now_s >= self._next_line_s:
            self._next_line_s = now_s + _LINE_S
            _LOGGER.info(
                "opening %s: %s%s, %d of %d segments scanned in %.0f s",
                self._path,
                self._place,
                folder,
                done,
                count,
                now_s - self._began_s,
            )
