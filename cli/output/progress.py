"""One line on a terminal that says how far a long run is. Nothing at all when standard error is no terminal."""

import sys
import time
from types import TracebackType
from typing import Self, TextIO

_INTERVAL_S = 0.1  # more often than this nobody can read it
_CLEAR = "\r\x1b[K"


class ProgressLine:
    """Shows the newest of many texts; leaves no trace when it closes. Cheap to call in a loop."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self.enabled = self._stream.isatty()
        self._next_s = 0.0
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def show(self, text: str) -> None:
        """Replace the line, unless it was replaced a moment ago. No text removes it at once."""
        if not text:
            self.clear()
            return
        if not self.enabled or (now := time.monotonic()) < self._next_s:
            return
        self._next_s = now + _INTERVAL_S
        self._shown = True
        self._stream.write(_CLEAR + text)
        self._stream.flush()

    def segments(self, log: str, done: int, count: int) -> None:
        """How many of a log's segments have been looked at, as the engine tells it."""
        self.show(f"{log}: {done:,} of {count:,} segments looked at")

    def clear(self) -> None:
        """Remove the line, so that other output can follow."""
        if self._shown:
            self._stream.write(_CLEAR)
            self._stream.flush()
            self._shown = False
