from dataclasses import fields
from pathlib import Path

from mqtt_front.codec.packets import Disconnect, Puback, Publish
from mqtt_front.ingest.ingest import DROP_REASONS
from mqtt_front.metrics import HELP, LIMITS
from mqtt_front.reasons import Reason
from mqtt_front.settings import MqttSettings
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import MqttServer
from tests.support.waiting import wait_for
from timestone.config import LogConfig
from timestone.metrics.histogram import Histogram


def test_each_counted_limit_is_a_setting() -> None:
    settings = {field.name for kind in (MqttSettings, LogConfig) for field in fields(kind)}
    assert settings.issuperset(LIMITS)
    assert len(set(LIMITS)) == len(LIMITS)


def test_docs_name_every_counter_and_every_counted_limit(server: MqttServer) -> None:
    docs = Path(__file__).parents[2] / "docs"
    metrics, limits = ((docs / name).read_text("utf-8") for name in ("metrics.md", "limits.md"))
    counted = [name for name, value in server.status().items() if isinstance(value, int)]
    named = [name for name in counted if not name.startswith("over_")]
    assert [name for name in named if f"_mqtt_{name}" not in metrics] == []
    assert [limit for limit in LIMITS if f"`{limit}`" not in limits] == []


def test_client_actions_increment_their_counters(server: MqttServer) -> None:
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
    assert HELP.keys() <= after.keys()
    wait_for(lambda: server.status()["connections"] == before["connections"])


def test_system_topics_include_figures_computed_over_all_sessions(server: MqttServer) -> None:
    with RawClient(server.address, 4) as client:
        client.connect("watching")
        client.subscribe("$SYS/broker/subscriptions/count")
        assert [message.payload for message in client.receive(1)] == [b"1"]


def sample(server: MqttServer, name: str, **labels: str) -> float | Histogram:
    metric = next(one for one in server.call(server.front.metrics) if one.name == name)
    return next((value for of, value in metric.samples if of == labels), 0)


def test_each_acknowledged_publish_and_each_delivery_is_in_its_histogram(server: MqttServer) -> None:
    names = ("acknowledge_seconds", "deliver_seconds")
    count = 5

    def counts() -> list[int]:
        found = [sample(server, name) for name in names]
        return [one.count for one in found if isinstance(one, Histogram)]

    before, sent = counts(), server.status()["deliveries_sent"]
    with RawClient(server.address, 4) as client:
        client.connect("measured", clean=True)
        client.subscribe("timed/#")
        for number in range(count):
            client.publish("timed/1", b"x", packet_id=1 + number)
            client.receive(1)
        wait_for(lambda: server.status()["deliveries_sent"] == sent + count)
        after = counts()
    assert [later - earlier for earlier, later in zip(before, after, strict=True)] == [count, count]


def test_connections_and_dropped_publishes_are_counted_by_reason(server: MqttServer) -> None:
    def by_reason() -> tuple[float | Histogram, ...]:
        return (
            sample(server, "ended_connections", reason="client_disconnect"),
            sample(server, "ended_connections", reason="session_taken_over"),
            sample(server, "refused_connections", reason="protocol_error"),
            sample(server, "dropped_publishes", reason="topic_name_invalid"),
        )

    before = by_reason()
    with RawClient(server.address, 5) as first, RawClient(server.address, 5) as second:
        first.connect("reasons", clean=True)
        second.connect("reasons", clean=True)
        second.send(Publish("$share/x", b"x", 1, packet_id=1))
        assert second.expect(Puback).reason == Reason.TOPIC_NAME_INVALID
        second.send(Disconnect())
        with RawClient(server.address, 5) as third:
            third.send(Publish("t", b"x"))
            third.expect_closed()
        wait_for(lambda: by_reason()[0] != before[0])
    rises = [
        float(str(later)) - float(str(earlier)) for earlier, later in zip(before, by_reason(), strict=True)
    ]
    assert rises == [1, 1, 1, 1]
    status = server.status()
    assert status["publishes_dropped"] == sum(
        float(str(sample(server, "dropped_publishes", reason=reason))) for reason in DROP_REASONS
    )
