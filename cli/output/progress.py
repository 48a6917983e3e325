"""Progress line of a long run on a terminal. Prints nothing if standard error is not a terminal."""

import sys
import threading
import time
from typing import Self, TextIO

from ..units import format_bytes

_INTERVAL_S = 0.1  # more often than this it cannot be read
_CLEAR = "\r\x1b[K"


class ProgressLine:
    """Line that shows the newest of many texts and is removed at the end. Cheap to call in a loop."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self.enabled = self._stream.isatty()
        self._next_s = 0.0
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
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
        """Show how many segments of a log were examined, as reported by the engine."""
        self.show(f"{log}: {done:,} of {count:,} segments looked at")

    def bytes(self, log: str, done: int, total: int) -> None:
        """Show how many bytes of a log are read or there, as reported by tiering."""
        self.show(f"{log}: {format_bytes(done)} of {format_bytes(total)}")

    def clear(self) -> None:
        """Remove the line, so that other output can follow."""
        if self._shown:
            self._stream.write(_CLEAR)
            self._stream.flush()
            self._shown = False


class Steps:
    """Current step of a command of minutes, on standard error: on a terminal one line that counts the seconds, else a
    line for each step. Any thread may tell of a step."""

    def __init__(self, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._line = ProgressLine(self._stream)
        self._quiet = quiet
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._text = ""
        self._since_s = 0.0

    @property
    def on_terminal(self) -> bool:
        """Return whether a step replaces the previous one."""
        return self._line.enabled

    def __enter__(self) -> Self:
        if self.on_terminal and not self._quiet:
            threading.Thread(target=self._tick, name="steps", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self.clear()

    def begin(self, text: str) -> None:
        """Show a step that begins now."""
        if self._quiet:
            return
        if not self.on_terminal:
            print(text, file=self._stream, flush=True)
            return
        with self._lock:
            self._text, self._since_s = text, time.monotonic()
            self._line.show(f"{text} …")

    def clear(self) -> None:
        """Remove the line, so that other output can follow."""
        with self._lock:
            self._text = ""
            self._line.clear()

    def _tick(self) -> None:
        while not self._ended.wait(1):
            with self._lock:
                if self._text:
                    self._line.show(f"{self._text} … {time.monotonic() - self._since_s:.0f} s")
