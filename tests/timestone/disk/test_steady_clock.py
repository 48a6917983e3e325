"""The clock counts time that has provably passed, independent of the wall clock."""

import pytest

from tests.support.step_clock import BOOT_ID, NEXT_BOOT_ID, START_US, StepClock
from timestone.disk.steady_clock import ClockState, SteadyClock

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
HOUR_US = HOUR_MS * 1000
DAY_US = DAY_MS * 1000


def test_time_begins_at_zero_and_counts_while_the_machine_runs() -> None:
    clock = StepClock()
    clock.advance(5 * DAY_MS)
    steady = SteadyClock(clock, None)
    assert steady.now_us() == 0
    clock.advance(3 * DAY_MS)
    assert steady.now_us() == 3 * DAY_US
    assert steady.uptime_us() == 8 * DAY_US


@pytest.mark.parametrize("days", [-20000, -2, 2, 5000])
def test_time_does_not_move_when_the_clock_is_set(days: int) -> None:
    clock = StepClock()
    steady = SteadyClock(clock, None)
    clock.advance(HOUR_MS)
    clock.step(days * DAY_MS)
    assert steady.now_us() == HOUR_US
    clock.advance(HOUR_MS)
    assert steady.now_us() == 2 * HOUR_US


def test_time_counts_between_two_processes_of_one_boot() -> None:
    clock = StepClock()
    first = SteadyClock(clock, None)
    clock.advance(HOUR_MS)
    state = ClockState.decode(first.state().encode())
    clock.advance(2 * HOUR_MS)
    clock.step(DAY_MS)
    second = SteadyClock(clock, state)
    assert second.now_us() == 3 * HOUR_US
    assert second.timeline == first.timeline
    assert abs(second.unexplained_us - DAY_US) < 1000


@pytest.mark.parametrize("boot_id", [NEXT_BOOT_ID, bytes(16)])
def test_time_stands_still_between_two_boots(boot_id: bytes) -> None:
    clock = StepClock(boot_id=BOOT_ID if any(boot_id) else boot_id)
    steady = SteadyClock(clock, None)
    clock.advance(HOUR_MS)
    state = steady.state()
    clock.reboot(boot_id)
    clock.advance(5 * HOUR_MS)
    later = SteadyClock(clock, state)
    assert later.now_us() == HOUR_US
    clock.advance(HOUR_MS)
    assert later.now_us() == 2 * HOUR_US


def test_lower_uptime_counts_as_another_boot() -> None:
    clock = StepClock()
    clock.advance(DAY_MS)
    state = SteadyClock(clock, None).state()
    clock.reboot(BOOT_ID)
    clock.advance(HOUR_MS)
    assert SteadyClock(clock, state).now_us() == 0


def test_unexplained_time_is_negative_when_the_clock_is_set_back() -> None:
    clock = StepClock()
    state = SteadyClock(clock, None).state()
    clock.step(-DAY_MS)
    assert abs(SteadyClock(clock, state).unexplained_us + DAY_US) < 1000


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{}",
        b'{"timeline": 1, "passed_us": -1, "uptime_us": 0, "boot_id": "", "wall_us": 1}',
        b'{"timeline": 1, "passed_us": 1, "uptime_us": 0, "boot_id": "x", "wall_us": 1}',
        b'{"timeline": 1, "passed_us": 1.5, "uptime_us": 0, "boot_id": "", "wall_us": 1}',
    ],
)
def test_state_is_refused_when_it_is_damaged(document: bytes) -> None:
    with pytest.raises((ValueError, TypeError)):
        ClockState.decode(document)


def test_state_is_read_back_as_it_was() -> None:
    state = ClockState(1 << 62, 5, 7, NEXT_BOOT_ID, START_US)
    assert ClockState.decode(state.encode()) == state
