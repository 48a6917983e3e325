"""Whether an event loop may write a small batch itself, instead of handing it to the committer.

Two hand-overs between threads cost several times the write. But a write to the page cache may have to wait: the
kernel throttles writers or flushes. So the loop writes only while that happens rarely."""

import time
from collections.abc import Callable

MOST_BYTES = 160 * 1024
"""The largest batch, with its index entries: some tens of microseconds, and no more than the hand-overs would take."""
SLOW_S = 0.001
_TIMES_AS_LONG = 100
"""A slow write is made up for after so many times as long: waiting takes about a hundredth of a loop's time."""
_OWED_MOST_S = 1.0
"""The loop continues writing until it would take longer than this to make up for all that was slow, which is ten
milliseconds of it: most of what takes two is a processor that was taken away for a moment."""
_PAUSE_MOST_S = 1.0
"""What stalls for longer than a disk does is the machine, and says nothing about the next write."""


class DirectWrites:
    """Of one log. Used under its write lock, at each message: whoever writes looks at the clock and calls nothing here
    unless it was slow."""

    def __init__(self, now_s: Callable[[], float] = time.perf_counter) -> None:
        self.now_s = now_s
        """The clock of all times here."""
        self.paused_until_s = 0.0
        """No write before this."""

    def was_slow(self, began_s: float, ended_s: float) -> None:
        """A write took longer than SLOW_S, whether it failed or not."""
        made_up_s = max(self.paused_until_s + _OWED_MOST_S, ended_s) + _TIMES_AS_LONG * (ended_s - began_s)
        self.paused_until_s = min(made_up_s - _OWED_MOST_S, ended_s + _PAUSE_MOST_S)
