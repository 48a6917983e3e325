"""A clock set far ahead is believed only once that has lasted."""

from tests.support.step_clock import START_US, StepClock
from timestone.steady_clock import HOLD_US, STEP_US, SteadyClock

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
SECOND_US = 1_000_000


def near(found_us: int, expected_us: int) -> bool:
    return abs(found_us - expected_us) < SECOND_US


def test_goes_with_the_wall_clock_while_nobody_sets_it() -> None:
    clock = StepClock()
    steady = SteadyClock(clock, newest_us=START_US)
    for _ in range(5):
        clock.advance(3 * DAY_MS)
        assert near(steady.now_us(), clock.now_us())


def test_step_back_counts_at_once() -> None:
    clock = StepClock()
    steady = SteadyClock(clock, newest_us=START_US)
    clock.step(-400 * DAY_MS)
    assert near(steady.now_us(), START_US - 400 * DAY_MS * 1000)


def test_small_step_ahead_counts_at_once() -> None:
    clock = StepClock()
    steady = SteadyClock(clock, newest_us=START_US)
    clock.step(50 * MINUTE_MS)
    assert near(steady.now_us(), clock.now_us())


def test_large_step_ahead_counts_for_nothing_until_it_has_lasted() -> None:
    clock = StepClock()
    steady = SteadyClock(clock, newest_us=START_US)
    clock.step(5000 * DAY_MS)
    assert near(steady.now_us(), START_US)
    clock.advance(HOLD_US // 1000 - MINUTE_MS)
    assert near(steady.now_us(), START_US + HOLD_US - MINUTE_MS * 1000)
    clock.advance(2 * MINUTE_MS)
    assert near(steady.now_us(), clock.now_us())


def test_step_that_is_taken_back_leaves_no_trace() -> None:
    clock = StepClock()
    steady = SteadyClock(clock, newest_us=START_US)
    clock.step(5000 * DAY_MS)
    steady.now_us()
    clock.advance(30 * MINUTE_MS)
    clock.step(-5000 * DAY_MS)
    assert near(steady.now_us(), clock.now_us())
    clock.step(5000 * DAY_MS)
    clock.advance(40 * MINUTE_MS)
    assert near(steady.now_us(), START_US + 70 * MINUTE_MS * 1000), "the second step has its own hour"


def test_second_step_ahead_begins_the_wait_again() -> None:
    clock = StepClock()
    steady = SteadyClock(clock, newest_us=START_US)
    clock.step(2 * DAY_MS)
    steady.now_us()
    clock.advance(50 * MINUTE_MS)
    clock.step(5000 * DAY_MS)
    assert near(steady.now_us(), START_US + 50 * MINUTE_MS * 1000)
    clock.advance(20 * MINUTE_MS)
    assert near(steady.now_us(), START_US + 70 * MINUTE_MS * 1000)
    clock.advance(50 * MINUTE_MS)
    assert near(steady.now_us(), clock.now_us())


def test_machine_that_comes_up_years_ahead_is_not_believed_at_first() -> None:
    clock = StepClock()
    clock.step(5000 * DAY_MS)
    steady = SteadyClock(clock, newest_us=START_US)
    assert near(steady.now_us(), START_US + STEP_US)
    clock.advance(HOUR_MS + MINUTE_MS)
    assert near(steady.now_us(), clock.now_us())


def test_empty_store_has_nothing_to_compare_with() -> None:
    clock = StepClock()
    assert near(SteadyClock(clock, newest_us=0).now_us(), START_US)


def test_records_from_the_future_do_not_move_the_clock() -> None:
    clock = StepClock()
    steady = SteadyClock(clock, newest_us=START_US + 5000 * DAY_MS * 1000)
    assert near(steady.now_us(), START_US)
