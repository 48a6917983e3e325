"""Other servers, where they are installed."""

from pathlib import Path

import pytest

from timestone_bench.mqtt.peer_servers import (
    find_program,
    installed_version,
    mosquitto_server,
    nats_server,
    rumqttd_server,
)
from timestone_bench.mqtt.scenario import Scenario, run_scenario

FAN_OUT = Scenario(name="fan-out", qos=0, subscribers=2, messages=500, window=100)


@pytest.mark.slow
@pytest.mark.skipif(find_program("mosquitto") is None, reason="mosquitto is not installed")
@pytest.mark.parametrize("nodelay", [False, True], ids=["as it is", "nodelay"])
def test_mosquitto_takes_the_load_and_is_gone_afterwards(tmp_path: Path, nodelay: bool) -> None:
    with mosquitto_server(tmp_path, nodelay=nodelay) as target:
        assert run_scenario(FAN_OUT, target).faults == {}
        assert run_scenario(Scenario(name="session-unload", messages=500), target).faults == {}
    assert target.cpu_s() is None
    assert "mosquitto" in (installed_version("mosquitto") or "")


@pytest.mark.skipif(find_program("nats-server") is None, reason="nats-server is not installed")
@pytest.mark.parametrize("native", [False, True], ids=["mqtt", "its own"])
def test_nats_takes_the_load_in_both_its_languages(tmp_path: Path, native: bool) -> None:
    with nats_server(tmp_path, native=native) as target:
        assert run_scenario(FAN_OUT, target).faults == {}
    assert target.cpu_s() is None


@pytest.mark.slow
@pytest.mark.skipif(find_program("rumqttd") is None, reason="rumqttd is not installed")
def test_rumqttd_takes_the_load_and_is_gone_afterwards(tmp_path: Path) -> None:
    with rumqttd_server(tmp_path) as target:
        assert run_scenario(FAN_OUT, target).faults == {}
    assert target.cpu_s() is None


def test_what_is_not_installed_has_no_version() -> None:
    assert installed_version("no-such-server") is None
