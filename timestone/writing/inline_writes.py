"""Inline write policy: whether an event loop may write a small batch itself instead of passing it to the committer.

Two thread switches cost several times the write. But a write to the page cache may block, because the kernel
throttles writers or flushes. So the loop writes only while that is rare."""

import time
from collections.abc import Callable

from timestone.kernel.loops import PausedWrites

SLOW_S = 0.001
_TIMES_AS_LONG = 100
"""Pause after a slow write, as a multiple of its duration, so that blocking takes about a hundredth of the loop's
time."""
_OWED_MOST_S = 1.0
"""The loop keeps writing until the pauses owed exceed this, which is ten milliseconds of slow writes: most writes of
two milliseconds were preempted by the scheduler."""
_PAUSE_MOST_S = 1.0
"""A longer stall is caused by the machine, not the disk, and does not predict the next write."""


class InlineWrites(PausedWrites):
    """Policy of one log. Used under its write lock for each message: the writer reads the clock and calls `was_slow`
    only after a slow write."""

    def __init__(self, now_s: Callable[[], float] = time.perf_counter) -> None:
        self.now_s, self.slow_s, self.paused_until_s = now_s, SLOW_S, 0.0

    def was_slow(self, began_s: float, ended_s: float) -> None:
        """Note a write that took longer than SLOW_S, failed or not."""
        made_up_s = max(self.paused_until_s + _OWED_MOST_S, ended_s) + _TIMES_AS_LONG * (ended_s - began_s)
        self.paused_until_s = min(made_up_s - _OWED_MOST_S, ended_s + _PAUSE_MOST_S)
