"""State that a client relies on is durable before the answer: steps of QoS 2, the end of an earlier session."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import timestone
from mqtt_front.codec.packets import (
    Connack,
    Connect,
    Disconnect,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Request,
)
from mqtt_front.codec.properties import Properties
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import MqttServer, mqtt_server
from tests.support.stalled_documents import StalledDocuments
from tests.support.waiting import wait_for

LASTING = Properties(session_expiry_interval=1000)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MqttServer, StalledDocuments]]:
    with timestone.open(tmp_path_factory.mktemp("ahead")) as store:
        documents = StalledDocuments(store)
        with mqtt_server(Path(), store=store, session_save_ms=3_600_000) as server:
            yield server, documents


@pytest.fixture
def server(parts: tuple[MqttServer, StalledDocuments]) -> MqttServer:
    return parts[0]


@pytest.fixture
def documents(parts: tuple[MqttServer, StalledDocuments]) -> StalledDocuments:
    return parts[1]


def lasting(server: MqttServer, name: str) -> RawClient:
    client = RawClient(server.address, 5)
    client.connect(name, clean=False, properties=LASTING)
    return client


@contextlib.contextmanager
def connecting_again(server: MqttServer, name: str, **options: Any) -> Iterator[RawClient]:
    """A client that has sent its CONNECT, once the server has seen the end of its last connection."""
    wait_for(lambda: server.status()["sessions_connected"] == 0)
    with RawClient(server.address, 5) as client:
        client.send(Connect(name, 5, **{"clean_start": False, "properties": LASTING, **options}))
        yield client


def nothing_comes(client: RawClient) -> None:
    with contextlib.suppress(TimeoutError):
        raise AssertionError(client.next_packet(0.2))


def subscribed(server: MqttServer, name: str, topic_filter: str) -> RawClient:
    client = lasting(server, name)
    assert client.subscribe(Request(topic_filter, 2)) == (2,)
    return client


def publish(server: MqttServer, topic: str) -> None:
    with RawClient(server.address, 5) as publisher:
        publisher.connect("publisher")
        publisher.send(Publish(topic, b"x", 2, packet_id=1))
        publisher.expect(Pubrec)


@pytest.mark.parametrize("prefix", ["", "$share/g/"])
def test_release_waits_over_a_reconnect_until_its_pubrec_is_durable(
    server: MqttServer, documents: StalledDocuments, prefix: str
) -> None:
    name = f"release{len(prefix)}"
    with subscribed(server, name, prefix + name) as client:
        publish(server, name)
        delivery = client.expect(Publish)
        with documents.standing_still():
            client.send(Pubrec(delivery.packet_id), Disconnect(properties=LASTING))
            client.expect_closed()
            with connecting_again(server, name) as again:
                nothing_comes(again)
    with connecting_again(server, name) as again:
        assert again.expect(Connack).session_present
        assert again.expect(Pubrel).packet_id == delivery.packet_id


@pytest.mark.parametrize("prefix", ["", "$share/g/"])
def test_delivery_waits_over_a_reconnect_until_its_packet_id_is_durable(
    server: MqttServer, documents: StalledDocuments, prefix: str
) -> None:
    name = f"delivery{len(prefix)}"
    with subscribed(server, name, prefix + name) as client, documents.standing_still():
        publish(server, name)
        nothing_comes(client)
        client.close()
        with connecting_again(server, name) as again:
            nothing_comes(again)
    with connecting_again(server, name) as again:
        again.expect(Connack)
        assert again.expect(Publish).payload == b"x"


def test_second_pubrel_is_answered_when_the_first_is_durable(
    server: MqttServer, documents: StalledDocuments
) -> None:
    with lasting(server, "pubrel") as client:
        client.send(Publish("pubrel", b"x", 2, packet_id=5))
        client.expect(Pubrec)
        with documents.standing_still():
            for _ in range(2):
                client.send(Pubrel(5))
                client.expect_silence()
        assert [client.expect(Pubcomp) for _ in range(2)] == [Pubcomp(5), Pubcomp(5, 0x92)]


@pytest.mark.parametrize("expiry_s", [0, 1000])
def test_clean_start_is_answered_when_the_old_session_is_gone_for_good(
    server: MqttServer, documents: StalledDocuments, expiry_s: int
) -> None:
    name = f"clean{expiry_s}"
    subscribed(server, name, name).close()
    with documents.standing_still():
        asked = Properties(session_expiry_interval=expiry_s)
        with connecting_again(server, name, clean_start=True, properties=asked) as again:
            nothing_comes(again)


@pytest.mark.parametrize("expiry_s", [0, 1000])
def test_new_session_waits_until_the_one_that_ended_is_gone_for_good(
    server: MqttServer, documents: StalledDocuments, expiry_s: int
) -> None:
    name = f"ended{expiry_s}"
    with subscribed(server, name, name) as client, documents.standing_still():
        client.send(Disconnect(properties=Properties(session_expiry_interval=0)))
        client.expect_closed()
        asked = Properties(session_expiry_interval=expiry_s)
        with connecting_again(server, name, properties=asked) as again:
            nothing_comes(again)


def test_session_is_not_waited_for_where_nothing_of_it_is_stored(
    server: MqttServer, documents: StalledDocuments
) -> None:
    with documents.standing_still(), RawClient(server.address, 5) as client:
        assert not client.connect("passing").session_present
