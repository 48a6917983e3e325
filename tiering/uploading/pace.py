"""How fast segments are uploaded: a budget of bytes a second, and consideration for the disk.

Reading a segment for its upload competes with the flushes that clients wait for, so while these take long, each piece
waits; but not without end, because on a slow disk they always do."""

import threading
import time
from collections.abc import Callable

from ..errors import TieringError

SLOW_FLUSH_S = 0.25
_PAUSE_MOST_S = 1.0
_PAUSE_STEP_S = 0.05


class Stopping(TieringError):
    """The upload is given up, because the server stops."""


class UploadPace:
    """Waits before each piece. One thread at a time; `stop` may be called by any."""

    def __init__(
        self,
        bytes_per_s: int,
        flush_s: Callable[[], float],
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """bytes_per_s: 0 for no limit. flush_s: how long the flush takes that is under way, or the last one took."""
        self._bytes_per_s = bytes_per_s
        self._flush_s = flush_s
        self._now_s = now_s
        self._stopped = threading.Event()
        self._free_s = now_s()
        """When the next piece may go by the budget."""
        self.paused = False
        """A piece waits for the disk."""

    def __call__(self, size_bytes: int) -> None:
        """Wait until a piece of this size may go. Raises Stopping."""
        self._pause()
        if self._bytes_per_s:
            now_s = self._now_s()
            self._free_s = max(self._free_s, now_s) + size_bytes / self._bytes_per_s
            self.wait(self._free_s - now_s - size_bytes / self._bytes_per_s)
        self.wait(0)

    def wait(self, seconds: float) -> None:
        """Wait so long. Raises Stopping."""
        if self._stopped.wait(max(seconds, 0.0)):
            raise Stopping("the upload was stopped")

    def stop(self) -> None:
        """End every wait, those to come too."""
        self._stopped.set()

    def _pause(self) -> None:
        until_s = self._now_s() + _PAUSE_MOST_S
        try:
            while self._flush_s() > SLOW_FLUSH_S and self._now_s() < until_s:
                self.paused = True
                self.wait(_PAUSE_STEP_S)
        finally:
            self.paused = False
