"""A rate in the long term, and a burst of ten seconds at once."""

from mqtt_front.runtime.timer_wheel import TICK_S
from mqtt_front.runtime.token_bucket import BURST_S, TokenBucket


def test_burst_is_limited_to_ten_seconds_of_the_rate() -> None:
    rate = TokenBucket(5, now=1)
    assert all(rate.spend(1, 1) for _ in range(5 * BURST_S))
    assert not rate.spend(1, 1)


def test_long_term_rate_is_the_configured_one() -> None:
    rate, spent = TokenBucket(8, now=1), 0
    ticks = int(1000 / TICK_S)
    for now in range(1, ticks):
        while rate.spend(1, now):
            spent += 1
    assert 8 * 1000 <= spent <= 8 * (1000 + BURST_S)


def test_silence_accumulates_at_most_one_burst() -> None:
    rate = TokenBucket(1, now=1)
    assert rate.spend(BURST_S, 1)
    assert not rate.spend(BURST_S + 1, 1_000_000)
    assert rate.spend(BURST_S, 1_000_000), "what was refused was not taken"
