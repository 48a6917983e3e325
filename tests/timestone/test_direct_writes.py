"""A loop writes itself only what is small, and not while writes are slow."""

from timestone.direct_writes import MOST_BYTES, DirectWrites


class SteadyClock:
    def __init__(self) -> None:
        self.now_s = 10.0

    def __call__(self) -> float:
        return self.now_s


def after_a_write_of(seconds: float) -> tuple[DirectWrites, SteadyClock]:
    """One write took so long, and has ended now."""
    clock = SteadyClock()
    writes = DirectWrites(clock)
    assert writes.begin(1)
    clock.now_s += seconds
    writes.end()
    return writes, clock


def test_a_small_batch_may_be_written_and_a_large_one_not() -> None:
    writes = DirectWrites()
    assert writes.begin(MOST_BYTES)
    assert not writes.begin(MOST_BYTES + 1)


def test_after_a_slow_write_there_is_none_for_a_hundred_times_as_long() -> None:
    writes, clock = after_a_write_of(0.004)
    clock.now_s += 0.399
    assert not writes.begin(1)
    clock.now_s += 0.002
    assert writes.begin(1)


def test_a_quick_write_keeps_nobody_from_the_next() -> None:
    writes, _ = after_a_write_of(0.0009)
    assert writes.begin(1)


def test_after_a_stall_of_the_machine_the_pause_is_a_second() -> None:
    writes, clock = after_a_write_of(60)
    clock.now_s += 0.999
    assert not writes.begin(1)
    clock.now_s += 0.002
    assert writes.begin(1)
