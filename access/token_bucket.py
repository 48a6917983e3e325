"""Token bucket: a rate limit with a burst of ten seconds."""

BURST_S = 10


class TokenBucket:
    """Tokens of one client. Time is counted in ticks of the caller's clock, so that spending makes no system call."""

    __slots__ = ("_full", "_left", "_per_tick", "_tick")

    def __init__(self, per_s: int, now: int, tick_s: float) -> None:
        """now: the current tick. tick_s: length of a tick in seconds."""
        self._full = self._left = float(per_s * BURST_S)
        self._per_tick = per_s * tick_s
        self._tick = now

    def spend(self, amount: int, now: int) -> bool:
        """Take `amount` tokens. Return False, with none taken, if fewer are left."""
        if now != self._tick:
            self._left = min(self._full, self._left + (now - self._tick) * self._per_tick)
            self._tick = now
        if amount > self._left:
            return False
        self._left -= amount
        return True
