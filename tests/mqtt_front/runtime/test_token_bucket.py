"""So many a second in the long run, and ten seconds' worth at once."""

from mqtt_front.runtime.timer_wheel import TICK_S
from mqtt_front.runtime.token_bucket import BURST_S, Rate


def test_ten_seconds_worth_may_come_at_once_and_no_more() -> None:
    rate = Rate(5, now=1)
    assert all(rate.spend(1, 1) for _ in range(5 * BURST_S))
    assert not rate.spend(1, 1)


def test_in_the_long_run_it_is_so_many_a_second() -> None:
    rate, spent = Rate(8, now=1), 0
    ticks = int(1000 / TICK_S)
    for now in range(1, ticks):
        while rate.spend(1, now):
            spent += 1
    assert 8 * 1000 <= spent <= 8 * (1000 + BURST_S)


def test_silence_saves_up_no_more_than_the_burst() -> None:
    rate = Rate(1, now=1)
    assert rate.spend(BURST_S, 1)
    assert not rate.spend(BURST_S + 1, 1_000_000)
    assert rate.spend(BURST_S, 1_000_000), "what was refused was not taken"
