"""A loop does not write itself while writes are slow."""

from timestone.writing.inline_writes import SLOW_S, DirectWrites


class SteadyClock:
    def __init__(self) -> None:
        self.now_s = 10.0

    def __call__(self) -> float:
        return self.now_s


def after_writes_of(*seconds: float) -> tuple[DirectWrites, SteadyClock]:
    """Writes took so long, and the last has ended now."""
    clock = SteadyClock()
    writes = DirectWrites(clock)
    for took_s in seconds:
        write(writes, clock, took_s)
    return writes, clock


def may_write(writes: DirectWrites) -> bool:
    return writes.now_s() >= writes.paused_until_s


def write(writes: DirectWrites, clock: SteadyClock, took_s: float) -> None:
    """As `Log.append_now` does."""
    assert may_write(writes)
    clock.now_s += took_s
    if took_s > SLOW_S:
        writes.was_slow(clock.now_s - took_s, clock.now_s)


def test_a_slow_write_now_and_then_keeps_nobody_from_the_next() -> None:
    writes, clock = after_writes_of(0.009)
    for _ in range(20):
        write(writes, clock, 0.005)
        clock.now_s += 0.5


def test_when_many_were_slow_there_is_none_until_they_were_a_hundredth_of_the_time() -> None:
    writes, clock = after_writes_of(0.004, 0.004, 0.004)
    clock.now_s += 0.191  # 0.4 s each, less a second, less the eight milliseconds since the first was over
    assert not may_write(writes)
    clock.now_s += 0.002
    assert may_write(writes)


def test_quick_writes_keep_nobody_from_the_next() -> None:
    writes, _ = after_writes_of(*[0.0009] * 1000)
    assert may_write(writes)


def test_after_a_stall_of_the_machine_the_pause_is_a_second() -> None:
    writes, clock = after_writes_of(60)
    clock.now_s += 0.999
    assert not may_write(writes)
    clock.now_s += 0.002
    assert may_write(writes)
