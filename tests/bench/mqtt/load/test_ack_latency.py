"""How long messages wait for their acknowledgements."""

import numpy as np

from timestone_bench.mqtt.load import ack_latency as module
from timestone_bench.mqtt.load.ack_latency import AckLatency


def latencies_us(waits: AckLatency) -> dict[str, float]:
    return waits.histogram().summary_us()


def test_runs_of_acknowledgements_need_not_be_those_that_were_sent() -> None:
    waits = AckLatency()
    waits.sent(3, 1_000_000)
    waits.sent(2, 2_000_000)
    waits.acknowledged(1, 1_500_000)  # 500 us
    waits.acknowledged(3, 3_000_000)  # 2,000 us twice and 1,000 us
    assert waits.histogram().count == 4
    assert latencies_us(waits)["max"] == 2000
    waits.acknowledged(1, 9_000_000)
    assert waits.histogram().count == 5 and latencies_us(waits)["max"] == 7000


def test_messages_that_were_due_apart_wait_apart() -> None:
    waits = AckLatency()
    waits.sent_apart(np.array([1_000_000, 2_000_000, 3_000_000]))
    waits.acknowledged(3, 4_000_000)
    counted = waits.histogram()
    assert counted.count == 3
    assert abs(counted.percentile_us(0.01) - 1000) < 20 and abs(counted.percentile_us(1) - 3000) < 20


def test_what_is_not_acknowledged_yet_is_kept_when_many_are_compared() -> None:
    waits = AckLatency()
    for number in range(5):
        waits.sent(module._AT_ONCE // 2 - 1, number * 1_000_000)
    for number in range(5):
        waits.acknowledged(module._AT_ONCE // 2 - 2, number * 1_000_000 + 500_000)
    assert waits.histogram().count == 5 * (module._AT_ONCE // 2 - 2)
    waits.acknowledged(5, 9_000_000)
    assert waits.histogram().count == 5 * (module._AT_ONCE // 2 - 1)
    assert latencies_us(waits)["max"] == 5000


def test_nothing_acknowledged_has_no_latency() -> None:
    waits = AckLatency()
    waits.sent(3, 1)
    assert latencies_us(waits) == {}
