from dataclasses import fields
from pathlib import Path

from mqtt_front.codec.packets import Puback, Publish
from mqtt_front.metrics import GAUGES, LIMITS
from mqtt_front.settings import MqttSettings
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import MqttServer
from tests.support.waiting import wait_for
from timestone.config import LogConfig


def test_each_limit_that_is_counted_is_a_setting() -> None:
    settings = {field.name for kind in (MqttSettings, LogConfig) for field in fields(kind)}
    assert settings.issuperset(LIMITS)
    assert len(set(LIMITS)) == len(LIMITS)


def test_the_pages_name_every_counter_and_every_limit_that_is_counted(server: MqttServer) -> None:
    docs = Path(__file__).parents[2] / "docs"
    monitoring, limits = ((docs / name).read_text("utf-8") for name in ("monitoring.md", "limits.md"))
    counted = [name for name, value in server.status().items() if isinstance(value, int)]
    assert [name for name in counted if not name.startswith("over_") and f"`{name}`" not in monitoring] == []
    assert [limit for limit in LIMITS if f"`{limit}`" not in limits] == []


def test_what_clients_do_is_counted_by_name(server: MqttServer) -> None:
    wait_for(lambda: server.status()["connections"] == 0)  # those of other tests have gone
    before = server.status()
    with RawClient(server.address, 4) as client:
        client.connect("one", clean=True)
        client.send(Publish("t", b"x", 1, packet_id=1))
        client.expect(Puback)
        after = server.status()
    rises = {name: after[name] - before[name] for name in ("connections", "sessions", "publishes_received")}
    assert rises == {"connections": 1, "sessions": 1, "publishes_received": 1}
    assert after["packets_received"] - before["packets_received"] == 2
    assert after["bytes_received"] > before["bytes_received"]
    assert {f"over_{limit}" for limit in LIMITS} | GAUGES <= after.keys()
    wait_for(lambda: server.status()["connections"] == before["connections"])


def test_system_topics_have_those_that_cost_a_look_at_every_session(server: MqttServer) -> None:
    with RawClient(server.address, 4) as client:
        client.connect("watching")
        client.subscribe("$SYS/broker/subscriptions/count")
        assert [message.payload for message in client.receive(1)] == [b"1"]
