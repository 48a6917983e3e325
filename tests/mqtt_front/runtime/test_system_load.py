"""Averages a minute, as mosquitto computes them."""

import pytest

from mqtt_front.runtime.system_load import Load


def test_short_average_reaches_a_steady_rate_first() -> None:
    load = Load(["x"], interval_s=10)
    total = 0
    for _ in range(30):  # five minutes
        total += 100
        load.feed({"x": total})
    values = load.values()
    assert values["x", 1] == pytest.approx(600, rel=0.01)
    assert values["x", 5] == pytest.approx(600 * (1 - 0.3679), rel=0.01)
    assert values["x", 15] < values["x", 5] < values["x", 1]


def test_averages_fall_in_silence() -> None:
    load = Load(["x", "y"], interval_s=60)
    load.feed({"x": 60, "y": 0})
    before = load.values()
    load.feed({"x": 60, "y": 0})
    assert load.values()["x", 1] == pytest.approx(before["x", 1] * 0.3679, rel=0.01)
    assert load.values()["y", 1] == 0
