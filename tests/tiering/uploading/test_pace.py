"""When the next piece of an upload may go."""

import threading

import pytest

from timestone_tiering.uploading.pace import SLOW_FLUSH_S, Stopping, UploadPace


class Clock:
    """Time that passes by waiting."""

    def __init__(self, pace: UploadPace | None = None) -> None:
        self.now_s = 100.0
        self.waited: list[float] = []

    def __call__(self) -> float:
        return self.now_s


def paced(clock: Clock, bytes_per_s: int = 0, flush_s: float = 0.0) -> UploadPace:
    pace = UploadPace(bytes_per_s, lambda: flush_s, now_s=clock)
    stopped = pace._stopped

    class Event:
        """Lets the clock run instead of waiting."""

        def wait(self, timeout: float) -> bool:
            clock.now_s += timeout
            clock.waited.append(timeout)
            return stopped.is_set()

        def set(self) -> None:
            stopped.set()

    pace._stopped = Event()  # type: ignore[assignment]
    return pace


def test_pieces_keep_within_the_budget() -> None:
    clock = Clock()
    pace = paced(clock, bytes_per_s=1000)
    for _ in range(10):
        pace(500)
    assert clock.now_s == pytest.approx(100.0 + 9 * 0.5)


def test_a_pause_gives_no_credit_for_later() -> None:
    clock = Clock()
    pace = paced(clock, bytes_per_s=1000)
    pace(500)
    clock.now_s += 60
    pace(500)
    before = clock.now_s
    pace(500)
    assert clock.now_s == pytest.approx(before + 0.5)


def test_without_a_budget_nothing_waits() -> None:
    clock = Clock()
    pace = paced(clock)
    pace(1 << 30)
    assert clock.now_s == 100.0


def test_a_piece_waits_while_flushes_are_slow_but_not_without_end() -> None:
    clock = Clock()
    paced(clock, flush_s=2 * SLOW_FLUSH_S)(1)
    assert 100.9 < clock.now_s < 101.2
    other = Clock()
    paced(other, flush_s=SLOW_FLUSH_S / 2)(1)
    assert other.now_s == 100.0


def test_stop_ends_a_wait() -> None:
    pace = UploadPace(1, lambda: 0.0)
    pace(1)
    threading.Timer(0.05, pace.stop).start()
    with pytest.raises(Stopping):
        pace(1000)
    with pytest.raises(Stopping):
        pace(0)
