"""An event loop does not write inline while writes are slow."""

from timestone.writing.inline_writes import SLOW_S, InlineWrites


class SteadyClock:
    def __init__(self) -> None:
        self.now_s = 10.0

    def __call__(self) -> float:
        return self.now_s


def after_writes_of(*seconds: float) -> tuple[InlineWrites, SteadyClock]:
    """Writes took so long, and the last has ended now."""
    clock = SteadyClock()
    writes = InlineWrites(clock)
    for took_s in seconds:
        write(writes, clock, took_s)
    return writes, clock


def may_write(writes: InlineWrites) -> bool:
    return writes.now_s() >= writes.paused_until_s


def write(writes: InlineWrites, clock: SteadyClock, took_s: float) -> None:
    """As `Log.append_now` does."""
    assert may_write(writes)
    clock.now_s += took_s
    if took_s > SLOW_S:
        writes.was_slow(clock.now_s - took_s, clock.now_s)


def test_rare_slow_write_does_not_stop_inline_writes() -> None:
    writes, clock = after_writes_of(0.009)
    for _ in range(20):
        write(writes, clock, 0.005)
        clock.now_s += 0.5


def test_many_slow_writes_stop_inline_writes_until_they_are_a_hundredth_of_the_time() -> None:
    writes, clock = after_writes_of(0.004, 0.004, 0.004)
    clock.now_s += 0.191  # 0.4 s each, less a second, less the eight milliseconds since the first was over
    assert not may_write(writes)
    clock.now_s += 0.002
    assert may_write(writes)


def test_quick_writes_do_not_stop_inline_writes() -> None:
    writes, _ = after_writes_of(*[0.0009] * 1000)
    assert may_write(writes)


def test_pause_is_one_second_after_a_stall_of_the_machine() -> None:
    writes, clock = after_writes_of(60)
    clock.now_s += 0.999
    assert not may_write(writes)
    clock.now_s += 0.002
    assert may_write(writes)
