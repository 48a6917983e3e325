"""Seconds are counted by the clock that nobody sets, and a record grows old by time that has passed, not by time that
the wall clock has leapt over."""

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
def test_a_clock_that_is_set_lets_no_time_pass(clocks: Clocks, step_ms: int) -> None:
    before_s = clocks.time.now_s()
    clocks.clock.step(step_ms)
    assert clocks.time.now_s() == before_s
    clocks.clock.advance(1500)
    assert clocks.time.now_s() == before_s + 1.5


def test_what_the_clock_leaps_over_makes_no_record_older(clocks: Clocks) -> None:
    clocks.pass_time(5_000)
    clocks.clock.step(DAY_MS)
    assert clocks.age_s(START_US) == 5
    clocks.pass_time(5_000)
    assert clocks.age_s(START_US) == 10
    assert clocks.age_s(START_US + DAY_US + 5_000_000) == 5, "it was appended after the leap"


def test_a_leap_that_is_taken_back_never_was(clocks: Clocks) -> None:
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


def test_nothing_is_older_than_it_can_be_when_the_clock_was_set_back(clocks: Clocks) -> None:
    clocks.clock.step(-DAY_MS)
    assert clocks.age_s(START_US) == 0
    clocks.pass_time(DAY_MS)
    clocks.pass_time(5_000)
    assert clocks.age_s(START_US) == 5


def test_a_clock_that_leaps_again_and_again_is_not_remembered_for_ever(clocks: Clocks) -> None:
    for _ in range(1000):
        clocks.clock.step(2_000)
        clocks.time.look()
    assert len(clocks.time._leaps) == 100
