"""The scenarios with a life of their own, against a real server."""

from pathlib import Path

import pytest

from tests.support.mqtt_process import MqttProcess
from timestone_bench.mqtt.scenario import Scenario, run_scenario
from timestone_bench.mqtt.target import Target


def target_of(server: MqttProcess) -> Target:
    return Target("timestone", "mqtt", *server.address, server.process.pid)


@pytest.mark.slow
def test_connections_have_a_price_and_are_heard(tmp_path: Path) -> None:
    with MqttProcess(tmp_path) as server:
        outcome = run_scenario(Scenario(name="connection", publishers=100, idle_s=0.2), target_of(server))
    assert outcome.faults == {}
    assert {"per_s", "cpu_us", "idle_cpu", "rss_bytes", "connect_p50_us", "delivery_p50_us"} <= set(
        outcome.figures
    )


@pytest.mark.slow
def test_a_session_that_was_away_gets_all_of_it(tmp_path: Path) -> None:
    with MqttProcess(tmp_path) as server:
        outcome = run_scenario(Scenario(name="session-unload", messages=20_000), target_of(server))
    assert outcome.faults == {}
    assert outcome.figures["per_s"] > 0 and "grown_bytes" in outcome.figures


@pytest.mark.slow
def test_a_flood_and_a_deaf_subscriber_are_beside_what_is_measured(tmp_path: Path) -> None:
    scenario = Scenario(name="back-pressure", publishers=2, subscribers=2, messages=400, rate=500)
    with MqttProcess(tmp_path) as server:
        outcome = run_scenario(scenario, target_of(server))
    assert outcome.faults == {}
    figures = outcome.figures
    assert {"flood_bytes_per_s", "grown_bytes"} <= set(figures)
    assert (
        figures["disturbed_delivery_p99_us"] == figures["delivery_p99_us"] / figures["quiet_delivery_p99_us"]
    )
    assert figures["again_delivery_p99_us"] > 0


@pytest.mark.slow
def test_messages_cost_processor_time(tmp_path: Path) -> None:
    with MqttProcess(tmp_path) as server:
        outcome = run_scenario(Scenario(name="fan-in", publishers=2, messages=2000), target_of(server))
    assert 0 < outcome.figures["cpu_us"] < 10_000
    assert "ack_p99_us" in outcome.figures


@pytest.mark.slow
@pytest.mark.parametrize(("qos", "rate"), [(0, None), (1, None), (0, 1000.0)])
def test_ping_pong_times_each_message(tmp_path: Path, qos: int, rate: float | None) -> None:
    scenario = Scenario(name="ping-pong", qos=qos, subscribers=1, messages=100, rate=rate)
    with MqttProcess(tmp_path) as server:
        figures = run_scenario(scenario, target_of(server)).figures
    assert figures["delivery_p50_us"] <= figures["delivery_max_us"]
    assert ("ack_p50_us" in figures) == (qos > 0)
    assert rate is None or figures["per_s"] < 1.1 * rate
