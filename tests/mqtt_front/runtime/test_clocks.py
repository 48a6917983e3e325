"""Seconds are counted by the monotonic clock, and a record ages by the time that has passed, not by jumps of the wall
clock."""

import pytest

from mqtt_front.runtime.clocks import PassingTime
from tests.support.step_clock import START_US, StepClock

DAY_MS = 86_400_000
DAY_US = DAY_MS * 1000


class Clocks:
    def __init__(self) -> None:
        self.clock = StepClock()
        self.time = PassingTime(self.clock)

    def age_s(self, timestamp_us: int) -> int:
        """As it is at the next tick."""
        self.time.look()
        return self.time.age_us(timestamp_us) // 1_000_000

    def pass_time(self, ms: int) -> None:
        """With a look at each tick."""
        for _ in range(10):
            self.clock.advance(ms // 10)
            self.time.look()


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.mark.parametrize("step_ms", [-DAY_MS, DAY_MS])
def test_no_time_passes_when_the_clock_is_set(clocks: Clocks, step_ms: int) -> None:
    before_s = clocks.time.now_s()
    clocks.clock.step(step_ms)
    assert clocks.time.now_s() == before_s
    clocks.clock.advance(1500)
    assert clocks.time.now_s() == before_s + 1.5


def test_record_does_not_age_by_a_clock_jump(clocks: Clocks) -> None:
    clocks.pass_time(5_000)
    clocks.clock.step(DAY_MS)
    assert clocks.age_s(START_US) == 5
    clocks.pass_time(5_000)
    assert clocks.age_s(START_US) == 10
    assert clocks.age_s(START_US + DAY_US + 5_000_000) == 5, "it was appended after the leap"


def test_reverted_clock_jump_has_no_effect(clocks: Clocks) -> None:
    clocks.clock.step(DAY_MS)
    clocks.pass_time(5_000)
    clocks.clock.step(DAY_MS)
    clocks.pass_time(5_000)
    clocks.clock.step(-DAY_MS - DAY_MS // 2)
    assert clocks.age_s(START_US) == 10, "half of the first leap is left"
    clocks.clock.step(-DAY_MS // 2)
    assert clocks.age_s(START_US) == 10
    clocks.pass_time(5_000)
    assert clocks.age_s(START_US) == 15


def test_age_is_bounded_when_the_clock_was_set_back(clocks: Clocks) -> None:
    clocks.clock.step(-DAY_MS)
    assert clocks.age_s(START_US) == 0
    clocks.pass_time(DAY_MS)
    clocks.pass_time(5_000)
    assert clocks.age_s(START_US) == 5


def test_number_of_remembered_jumps_is_bounded(clocks: Clocks) -> None:
    for _ in range(1000):
        clocks.clock.step(2_000)
        clocks.time.look()
    assert len(clocks.time._leaps) == 100
