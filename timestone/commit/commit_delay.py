"""Delay of a flush so that more appends share it (group commit).

A flush costs nearly the same for one record as for a thousand, and clients that are acknowledged together publish again
together. Without a delay, the first of them starts a flush for itself, and all others have to wait for the next one: of
a thousand messages in flight, groups of nine hundred and of a hundred alternated, and each waited for two flushes. So
a flush waits until half of the bytes in flight are written; the other half arrives while it runs. It never waits longer
than the last flush took. While few bytes are in flight, it waits for all of them, but at most a quarter of a flush, and
only if the last flush served several submissions (docs/decisions/0023-flush-groups.md).

Compare `commit_delay` of PostgreSQL. Starts no thread."""

import time
from collections.abc import Callable

from timestone.kernel.loops import AwaitedBytes

SMALL_BYTES = 16 * 1024
"""With fewer bytes in flight a flush is short, and a long delay gains little."""
PATIENCE_MOST_S = 0.001
SMALL_PATIENCE = 0.25
"""Part of the last flush for which a flush of few bytes may wait."""
_RECENT_S = 1.0
"""For so long, the last flush tells how busy the disk is."""


class CommitDelay(AwaitedBytes):
    """Commit delay of one log. Called under its write lock, except for `begin`, `end` and the properties."""

    def __init__(self, now_s: Callable[[], float] = time.perf_counter) -> None:
        self._now_s = now_s
        self._began_s = 0.0
        self._took_s = 0.0
        self.awaited_bytes = 0
        self._round_bytes = 0
        self._is_shared = False
        """Whether the last flush served more than one submission."""

    def written(self, size_bytes: int) -> None:
        """Add bytes that wait for a flush."""
        self.awaited_bytes += size_bytes

    def begin(self) -> None:
        """Note the start of a flush."""
        self._began_s = self._now_s()

    def end(self) -> float:
        """Note the end of a flush. Return how long it took."""
        self._took_s = self._now_s() - self._began_s
        return self._took_s

    def flush_s(self, *, under_way: bool) -> float:
        """Duration so far of the flush under way; otherwise of the last one, if that has just ended."""
        since_s = self._now_s() - self._began_s
        if under_way:
            return since_s
        return self._took_s if since_s < self._took_s + _RECENT_S else 0.0

    def answered(self, count: int, size_bytes: int, queued_bytes: int) -> None:
        """Note that `count` submissions of `size_bytes` are durable and acknowledged, and that `queued_bytes` were
        submitted since. Both together are the bytes in flight."""
        self.awaited_bytes -= size_bytes
        self._round_bytes = size_bytes + self.awaited_bytes + queued_bytes
        self._is_shared = count > 1

    def failed(self) -> None:
        """Forget all waiting bytes."""
        self.awaited_bytes = self._round_bytes = 0

    @property
    def missing_bytes(self) -> int:
        """Bytes to wait for before a flush begins; zero or less to begin now."""
        if self._round_bytes >= SMALL_BYTES:
            return self._round_bytes // 2 - self.awaited_bytes
        return self._round_bytes - self.awaited_bytes if self._is_shared else 0

    @property
    def patience_s(self) -> float:
        """Maximum time to wait for them."""
        part = 1.0 if self._round_bytes >= SMALL_BYTES else SMALL_PATIENCE
        return min(part * self._took_s, PATIENCE_MOST_S)
