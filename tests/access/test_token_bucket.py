"""A rate in the long term, and a burst of ten seconds at once."""

from timestone_access.token_bucket import BURST_S, TokenBucket

TICK_S = 0.5


def test_burst_is_limited_to_ten_seconds_of_the_rate() -> None:
    rate = TokenBucket(5, 1, TICK_S)
    assert all(rate.spend(1, 1) for _ in range(5 * BURST_S))
    assert not rate.spend(1, 1)


def test_long_term_rate_is_the_configured_one() -> None:
    rate, spent = TokenBucket(8, 1, TICK_S), 0
    ticks = int(1000 / TICK_S)
    for now in range(1, ticks):
        while rate.spend(1, now):
            spent += 1
    assert 8 * 1000 <= spent <= 8 * (1000 + BURST_S)


def test_silence_accumulates_at_most_one_burst() -> None:
    rate = TokenBucket(1, 1, TICK_S)
    assert rate.spend(BURST_S, 1)
    assert not rate.spend(BURST_S + 1, 1_000_000)
    assert rate.spend(BURST_S, 1_000_000), "what was refused was not taken"
