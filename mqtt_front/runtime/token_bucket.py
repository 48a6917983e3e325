"""How often something may happen: so many a second in the long run, ten seconds' worth at once."""

from mqtt_front.runtime.timer_wheel import TICK_S

BURST_S = 10


class Rate:
    """What is left of an allowance. Time is counted in ticks of `Deadlines`, so that spending costs no system call."""

    __slots__ = ("_full", "_left", "_per_tick", "_tick")

    def __init__(self, per_s: int, now: int) -> None:
        """`now` is the current tick."""
        self._full = self._left = float(per_s * BURST_S)
        self._per_tick = per_s * TICK_S
        self._tick = now

    def spend(self, amount: int, now: int) -> bool:
        """Take `amount`; False, and nothing taken, when that is more than is left."""
        if now != self._tick:
            self._left = min(self._full, self._left + (now - self._tick) * self._per_tick)
            self._tick = now
        if amount > self._left:
            return False
        self._left -= amount
        return True
