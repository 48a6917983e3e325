"""What an operator can have a front do, over real sockets."""

from collections.abc import Iterator
from typing import Any

import pytest

from mqtt_front.codec import packets
from mqtt_front.codec.properties import Properties
from mqtt_front.reasons import Reason
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import MqttServer, mqtt_server
from tests.support.waiting import wait_for

KEPT = Properties(session_expiry_interval=3600)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqttServer]:
    with mqtt_server(tmp_path_factory.mktemp("operated") / "data", packet_bytes=2000) as running:
        yield running


def end_session(server: MqttServer, client: str) -> Any:
    return server.call(lambda: server.front.end_session(client, None))


def test_session_of_a_connected_client_ends_for_good(server: MqttServer) -> None:
    with RawClient(server.address, 5) as client:
        client.connect("leaves", clean=False, properties=KEPT)
        client.subscribe("t/#")
        found = end_session(server, "leaves")
        assert [one["client"] for one in found["disconnected"]] == ["leaves"] and not found["was_away"]
        assert client.expect(packets.Disconnect).reason == Reason.ADMINISTRATIVE_ACTION
        client.expect_closed()
    with RawClient(server.address, 5) as again:
        assert not again.connect("leaves", clean=False).session_present


def test_session_of_an_absent_client_ends_and_its_delayed_will_is_published(server: MqttServer) -> None:
    will = packets.Will("last/words", b"gone", 1, False, Properties(will_delay_interval=3600))
    with RawClient(server.address, 5) as listener:
        listener.connect("listener")
        listener.subscribe("last/#")
        with RawClient(server.address, 5) as client:
            client.connect("away", clean=False, properties=KEPT, will=will)
        wait_for(lambda: server.call(lambda: not server.front.client("away", None)))
        assert end_session(server, "away") == {"disconnected": [], "was_away": True}
        assert listener.receive(1)[0].payload == b"gone"
    with RawClient(server.address, 5) as again:
        assert not again.connect("away", clean=False).session_present
    assert end_session(server, "never") is None


def test_message_is_published_retained_and_deleted(server: MqttServer) -> None:
    front = server.front
    server.run(front.publish("kept", b"21.5", 0, retain=True))
    found = server.call(lambda: front.retained("kept"))
    assert found is not None and (found["log"], found["partition"], found["payload_bytes"]) == ("mqtt", 0, 4)
    with RawClient(server.address, 5) as client:
        client.connect("late")
        client.subscribe("kept")
        assert client.receive(1)[0].payload == b"21.5"
    server.run(front.publish("kept", b"", 1, retain=True))
    assert server.call(lambda: front.retained("kept")) is None


@pytest.mark.parametrize("topic", ["", "a/#", "$SYS/x", "$timestone/x"])
def test_message_with_a_topic_that_is_refused_is_not_published(server: MqttServer, topic: str) -> None:
    before = server.store.log("mqtt").end_offset
    with pytest.raises(ValueError, match=r"topic"):
        server.run(server.front.publish(topic, b"x", 1, retain=False))
    with pytest.raises(ValueError, match="packet_bytes"):
        server.run(server.front.publish("t", b"x" * 2001, 1, retain=False))
    assert server.store.log("mqtt").end_offset == before
