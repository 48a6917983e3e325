import numpy as np

from timestone_bench.mqtt.load.periods import Periods


def add(periods: Periods, *due_ns: int) -> None:
    periods.add(np.array(due_ns), np.arange(1, len(due_ns) + 1) * 1000)


def test_a_latency_belongs_to_the_period_in_which_its_message_was_due() -> None:
    periods = Periods(100)
    periods.start_ns = 1000
    add(periods, 1299, 1000, 1099, 1100)
    add(periods, 1200)
    assert [one.count for one in periods.latencies] == [2, 1, 2]
    assert [one.summary_us()["max"] for one in periods.latencies] == [3.0, 4.0, 1.0]


def test_without_periods_the_run_is_one() -> None:
    periods = Periods()
    add(periods, 5, 1 << 40)
    assert [one.count for one in periods.latencies] == [2]
