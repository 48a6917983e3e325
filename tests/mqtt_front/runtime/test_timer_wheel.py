"""Silence ends a connection, any activity postpones the end, and removed connections are released."""

from mqtt_front.runtime.timer_wheel import TICK_S, TimerWheel, ticks
from tests.support.manual_loop import ManualLoop


class Watched:
    def __init__(self, allowed_s: float) -> None:
        self.last_seen = 1
        self.allowed_ticks = ticks(allowed_s)
        self.looked_at = 0
        self.overdue_at: int | None = None
        self.deadlines: TimerWheel | None = None

    def overdue(self) -> None:
        assert self.deadlines is not None
        self.overdue_at = self.deadlines.now


def watched(deadlines: TimerWheel, allowed_s: float) -> Watched:
    one = Watched(allowed_s)
    one.deadlines = deadlines
    deadlines.watch(one)
    return one


def test_silent_connection_is_overdue_after_its_time_and_not_before() -> None:
    loop = ManualLoop()
    deadlines = TimerWheel(loop)
    deadlines.start()
    one = watched(deadlines, 3.0)
    loop.pass_time(3.0)
    assert one.overdue_at is None
    loop.pass_time(2 * TICK_S)
    assert one.overdue_at is not None


def test_activity_postpones_the_deadline() -> None:
    loop = ManualLoop()
    deadlines = TimerWheel(loop)
    deadlines.start()
    one = watched(deadlines, 3.0)
    for _ in range(10):
        loop.pass_time(2.0)
        one.last_seen = deadlines.now
    assert one.overdue_at is None
    loop.pass_time(5.0)
    assert one.overdue_at is not None


def test_shorter_deadline_replaces_a_longer_one() -> None:
    loop = ManualLoop()
    deadlines = TimerWheel(loop)
    deadlines.start()
    one = watched(deadlines, 100.0)
    one.allowed_ticks = ticks(1.0)
    deadlines.watch(one)
    loop.pass_time(3.0)
    assert one.overdue_at is not None


def test_connection_without_deadline_is_never_overdue_and_removed_ones_are_released() -> None:
    loop = ManualLoop()
    deadlines = TimerWheel(loop)
    deadlines.start()
    one, other = watched(deadlines, 1.0), watched(deadlines, 1.0)
    one.allowed_ticks = 0
    deadlines.watch(one)
    deadlines.forget(other)
    assert not any(deadlines._due.values())
    loop.pass_time(100.0)
    assert one.overdue_at is None and other.overdue_at is None


def test_connection_removed_by_an_overdue_callback_is_not_called() -> None:
    deadlines = TimerWheel(ManualLoop())
    one, other = watched(deadlines, 1.0), watched(deadlines, 1.0)
    one.overdue = lambda: deadlines.forget(other)  # type: ignore[method-assign]
    for _ in range(10):
        deadlines.advance()
    assert other.overdue_at is None
    assert not any(deadlines._due.values())


def test_one_timer_serves_all_connections() -> None:
    loop = ManualLoop()
    deadlines = TimerWheel(loop)
    deadlines.start()
    for _ in range(1000):
        watched(deadlines, 60.0)
    assert len(loop.timers) == 1
    deadlines.stop()
    assert all(timer.cancelled for timer in loop.timers)
