"""DUP is set on every delivery that a client may have been sent before, also by a killed server, and on no other."""

from pathlib import Path

import pytest

from mqtt_front.codec.packets import Puback, Publish, Pubrec, Request
from mqtt_front.codec.properties import Properties
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_process import MqttProcess
from tests.support.mqtt_server import MqttServer

pytestmark = pytest.mark.crash
RARELY = {"session_save_ms": 3_600_000}
LASTING = Properties(session_expiry_interval=1000)


def lasting(server: MqttProcess | MqttServer, name: str, *requests: Request) -> RawClient:
    client = RawClient(server.address, 5)
    client.connect(name, clean=False, properties=LASTING)
    if requests:
        client.subscribe(*requests)
    return client


def publish(server: MqttProcess | MqttServer, topic: str, *payloads: bytes, qos: int = 1) -> None:
    with RawClient(server.address) as publisher:
        publisher.connect("publisher")
        for payload in payloads:
            publisher.send(Publish(topic, payload, qos, packet_id=1))
            assert isinstance(publisher.next_packet(), Puback if qos == 1 else Pubrec)


def flags(client: RawClient, count: int, *, acknowledge: bool = True) -> list[tuple[bytes, bool]]:
    """Payload and DUP of the next deliveries."""
    return [(one.payload, one.duplicate) for one in client.receive(count, acknowledge=acknowledge)]


@pytest.mark.parametrize("prefix", ["", "$share/g/", "$queue/q/", "$stream/mqtt/"])
@pytest.mark.parametrize("acknowledge", [True, False])
def test_delivery_at_qos_1_has_dup_when_a_killed_server_may_have_sent_it(
    tmp_path: Path, prefix: str, acknowledge: bool
) -> None:
    with MqttProcess(tmp_path, **RARELY) as server, lasting(server, "c", Request(f"{prefix}t", 1)) as client:
        publish(server, "t", b"1", b"2")
        assert flags(client, 2, acknowledge=acknowledge) == [(b"1", False), (b"2", False)]
        client.expect_silence()
        server.kill()
    with MqttProcess(tmp_path, **RARELY) as server:
        publish(server, "t", b"3")
        server.kill()
    with MqttProcess(tmp_path, **RARELY) as server:
        publish(server, "t", b"4")
        with lasting(server, "c") as client:
            assert flags(client, 4) == [(b"1", True), (b"2", True), (b"3", False), (b"4", False)]
            publish(server, "t", b"5")
            assert flags(client, 1) == [(b"5", False)]


def test_retained_message_has_dup_when_a_killed_server_may_have_sent_it(tmp_path: Path) -> None:
    with MqttProcess(tmp_path, **RARELY) as server, RawClient(server.address) as publisher:
        publisher.connect("p")
        publisher.send(Publish("t/1", b"1", 1, retain=True, packet_id=1))
        publisher.expect(Puback)
        with lasting(server, "c", Request("t/#", 1)) as client:
            assert flags(client, 1) == [(b"1", False)]
            server.kill()
    with MqttProcess(tmp_path) as server, lasting(server, "c") as client:
        assert flags(client, 1) == [(b"1", True)]


def test_delivery_has_no_dup_when_its_client_was_away_at_the_kill(tmp_path: Path) -> None:
    with MqttProcess(tmp_path, **RARELY) as server:
        lasting(server, "c", Request("t", 1)).close()
        lasting(server, "c").close()
        publish(server, "t", b"1")
        with RawClient(
            server.address
        ) as other:  # the end of the connection is behind it on the way to the disk
            other.connect("other", clean=False)
        server.kill()
    with MqttProcess(tmp_path) as server, lasting(server, "c") as client:
        assert flags(client, 1) == [(b"1", False)]


def test_delivery_at_qos_2_has_dup_when_its_exchange_had_begun(tmp_path: Path) -> None:
    with MqttProcess(tmp_path, **RARELY) as server, lasting(server, "c", Request("t", 2)) as client:
        publish(server, "t", b"1", qos=2)
        assert flags(client, 1, acknowledge=False) == [(b"1", False)]
        server.kill()
    with MqttProcess(tmp_path) as server, lasting(server, "c") as client:
        publish(server, "t", b"2", qos=2)
        assert flags(client, 2, acknowledge=False) == [(b"1", True), (b"2", False)]


def test_member_of_a_clean_session_gets_dup_on_what_a_killed_server_may_have_sent_it(tmp_path: Path) -> None:
    shared = Request("$queue/q/t", 1)
    with MqttProcess(tmp_path, **RARELY) as server, RawClient(server.address) as client:
        client.connect("c")
        client.subscribe(shared)
        publish(server, "t", b"1")
        assert flags(client, 1) == [(b"1", False)]
        server.kill()
    with MqttProcess(tmp_path) as server, RawClient(server.address) as client:
        client.connect("c")
        client.subscribe(shared)
        assert flags(client, 1) == [(b"1", True)]


def test_shared_message_has_dup_when_a_member_left_it_unacknowledged(server: MqttServer) -> None:
    with lasting(server, "left", Request("$share/g/left", 1)) as client:
        publish(server, "left", b"1")
        assert flags(client, 1, acknowledge=False) == [(b"1", False)]
    with lasting(server, "left") as client:
        publish(server, "left", b"2")
        assert flags(client, 2) == [(b"1", True), (b"2", False)]
