"""Whether an event loop may write a small batch itself, instead of handing it to the committer.

Two hand-overs between threads cost several times the write. But a write to the page cache may have to wait: the
kernel throttles writers or flushes. So the loop writes only while that happens rarely."""

import time
from collections.abc import Callable

MOST_BYTES = 160 * 1024
"""The largest batch, with its index entries: some tens of microseconds, and no more than the hand-overs would take."""
_SLOW_S = 0.001
_TIMES_AS_LONG = 100
"""A slow write is made up for after so many times as long: waiting takes about a hundredth of a loop's time."""
_OWED_MOST_S = 1.0
"""The loop goes on writing until it would take longer than this to make up for all that was slow, which is ten
milliseconds of it: most of what takes two is a processor that was taken away for a moment."""
_PAUSE_MOST_S = 1.0
"""What stalls for longer than a disk does is the machine, and says nothing about the next write."""


class DirectWrites:
    """Of one log. Called under its write lock."""

    def __init__(self, now_s: Callable[[], float] = time.perf_counter) -> None:
        self._now_s = now_s
        self._made_up_s = 0.0
        self._began_s = 0.0

    def begin(self, size_bytes: int) -> bool:
        """May a batch of this size be written now? Then call `end` when it is."""
        if size_bytes > MOST_BYTES:
            return False
        self._began_s = self._now_s()
        return self._began_s + _OWED_MOST_S >= self._made_up_s

    def end(self) -> None:
        """It is written, or has failed."""
        ended_s = self._now_s()
        took_s = ended_s - self._began_s
        if took_s > _SLOW_S:
            made_up_s = max(self._made_up_s, ended_s) + _TIMES_AS_LONG * took_s
            self._made_up_s = min(made_up_s, ended_s + _OWED_MOST_S + _PAUSE_MOST_S)
