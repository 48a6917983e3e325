"""How much the next flush of a log is worth waiting for.

A flush costs nearly the same whatever it carries, and whoever was answered together writes again together. Without
waiting, the first of them sets off a flush for itself alone, in which all others miss the bus: of a thousand messages
under way, nine hundred and a hundred took turns, and each waited for two flushes. So a flush waits until half of what
goes round has come, and the other half comes while it runs; each time no longer than the last one took, and not at all
where little goes round (docs/decisions/0023-flush-groups.md). It knows no threads."""

import time
from collections.abc import Callable

SMALL_BYTES = 16 * 1024
"""Less than this going round: whoever waits does so for one of a few, and gains little."""
PATIENCE_MOST_S = 0.001


class FlushGroups:
    """Of one log. Called under its write lock, but for `begin` and `end`, and for what is only looked at."""

    def __init__(self, now_s: Callable[[], float] = time.perf_counter) -> None:
        self._now_s = now_s
        self._began_s = 0.0
        self._took_s = 0.0
        self.awaited_bytes = 0
        """What is written and waits for a flush."""
        self._round_bytes = 0

    def written(self, size_bytes: int) -> None:
        """So much more waits for a flush."""
        self.awaited_bytes += size_bytes

    def begin(self) -> None:
        """A flush begins."""
        self._began_s = self._now_s()

    def end(self) -> None:
        """It is done."""
        self._took_s = self._now_s() - self._began_s

    def answered(self, size_bytes: int, queued_bytes: int) -> None:
        """So much of it is durable and its writers are told; `queued_bytes` were submitted in between. Together that is
        what goes round."""
        self.awaited_bytes -= size_bytes
        self._round_bytes = size_bytes + self.awaited_bytes + queued_bytes

    def failed(self) -> None:
        """Nothing waits any more."""
        self.awaited_bytes = self._round_bytes = 0

    @property
    def missing_bytes(self) -> int:
        """What should still come before a flush begins; zero or less when it may."""
        return self._round_bytes // 2 - self.awaited_bytes if self._round_bytes >= SMALL_BYTES else 0

    @property
    def patience_s(self) -> float:
        """The longest time to wait for that."""
        return min(self._took_s, PATIENCE_MOST_S)
