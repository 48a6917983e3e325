"""A client library by other authors, at both versions: publishing, subscribing, sessions, wills, properties."""

import math
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.support.mqtt_server import MqttServer, mqtt_server
from tests.support.waiting import TIMEOUT_S, wait_for

VERSIONS = {"3.1.1": MQTTProtocolVersion.MQTTv311, "5": MQTTProtocolVersion.MQTTv5}


class Client:
    """A paho client with its network thread, and what it received."""

    def __init__(
        self, server: MqttServer, client_id: str, version: MQTTProtocolVersion, *, lasting: bool = False
    ) -> None:
        self.messages: list[paho.MQTTMessage] = []
        self._subscribed = threading.Event()
        self.session_present: bool | None = None
        options = {} if version == MQTTProtocolVersion.MQTTv5 else {"clean_session": not lasting}
        self.paho = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=version,
            **options,  # type: ignore[arg-type]
        )
        self.paho.on_message = lambda client, data, message: self.messages.append(message)
        self.paho.on_subscribe = lambda *arguments: self._subscribed.set()
        self.paho.on_connect = self._connected
        wanted = {}
        if version == MQTTProtocolVersion.MQTTv5 and lasting:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = 3600
            wanted = {"properties": properties, "clean_start": False}
        self.paho.connect(*server.address, **wanted)  # type: ignore[arg-type]
        self.paho.loop_start()
        wait_for(lambda: self.session_present is not None)

    def _connected(self, client: paho.Client, data: object, flags: paho.ConnectFlags, *rest: object) -> None:
        self.session_present = bool(flags.session_present)

    def subscribe(self, topic_filter: str, options: int | SubscribeOptions = 1) -> None:
        if isinstance(options, int):
            self.paho.subscribe(topic_filter, qos=options)
        else:
            self.paho.subscribe(topic_filter, options=options)
        assert self._subscribed.wait(TIMEOUT_S)
        self._subscribed.clear()

    def publish(self, topic: str, payload: bytes, **options: object) -> None:
        self.paho.publish(topic, payload, qos=1, **options).wait_for_publish(TIMEOUT_S)  # type: ignore[arg-type]

    def payloads(self, count: int) -> list[bytes]:
        wait_for(lambda: len(self.messages) >= count)
        return [bytes(message.payload) for message in self.messages]

    def leave(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()


@pytest.fixture(params=list(VERSIONS.values()), ids=list(VERSIONS))
def version(request: pytest.FixtureRequest) -> MQTTProtocolVersion:
    return MQTTProtocolVersion(request.param)


@pytest.fixture
def clients() -> Iterator[list[Client]]:
    made: list[Client] = []
    yield made
    for client in made:
        client.leave()


def test_messages_arrive_once_and_in_order(
    server: MqttServer, version: MQTTProtocolVersion, clients: list[Client]
) -> None:
    clients += [Client(server, f"sub{version}", version), Client(server, f"pub{version}", version)]
    subscriber, publisher = clients
    subscriber.subscribe(f"p{version}/+/x")
    sent = [b"%d" % number for number in range(500)]
    pending = [publisher.paho.publish(f"p{version}/{int(payload) % 7}/x", payload, qos=1) for payload in sent]
    for one in pending:
        one.wait_for_publish(TIMEOUT_S)
    assert subscriber.payloads(500) == sent
    assert {message.qos for message in subscriber.messages} == {1}


def test_large_and_empty_payloads_are_delivered(
    server: MqttServer, version: MQTTProtocolVersion, clients: list[Client]
) -> None:
    clients.append(Client(server, f"large{version}", version))
    (client,) = clients
    client.subscribe(f"l{version}")
    payloads = [b"", b"x" * 127, b"x" * 128, b"x" * 16_384, bytes(range(256)) * 4000]
    for payload in payloads:
        client.publish(f"l{version}", payload)
    assert client.payloads(len(payloads)) == payloads


def test_session_survives_a_restart_of_the_server(tmp_path: Path, version: MQTTProtocolVersion) -> None:
    with mqtt_server(tmp_path) as server:
        away = Client(server, "away", version, lasting=True)
        assert away.session_present is False
        away.subscribe("wait/#")
        away.leave()
        publisher = Client(server, "publisher", version)
        for number in range(50):
            publisher.publish("wait/x", b"%d" % number)
        publisher.leave()
    with mqtt_server(tmp_path) as server:
        back = Client(server, "away", version, lasting=True)
        assert back.session_present is True
        assert back.payloads(50) == [b"%d" % number for number in range(50)]
        back.leave()


def test_will_reaches_its_subscribers(
    server: MqttServer, version: MQTTProtocolVersion, clients: list[Client]
) -> None:
    clients.append(Client(server, f"heir{version}", version))
    (heir,) = clients
    heir.subscribe(f"will{version}")
    mortal = paho.Client(CallbackAPIVersion.VERSION2, client_id=f"mortal{version}", protocol=version)
    mortal.will_set(f"will{version}", b"bye", qos=1)
    mortal.connect(*server.address)
    mortal.loop_start()
    wait_for(mortal.is_connected)
    connection = mortal.socket()
    assert isinstance(connection, socket.socket)
    connection.shutdown(socket.SHUT_RDWR)
    mortal.loop_stop()
    assert heir.payloads(1) == [b"bye"]


def test_properties_and_options_of_mqtt_5_are_supported(server: MqttServer, clients: list[Client]) -> None:
    clients += [
        Client(server, "five-sub", MQTTProtocolVersion.MQTTv5),
        Client(server, "five-pub", MQTTProtocolVersion.MQTTv5),
    ]
    subscriber, publisher = clients
    subscriber.subscribe("five", SubscribeOptions(qos=1, noLocal=True, retainAsPublished=True))
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    properties.UserProperty = [("b", "1"), ("a", "2"), ("b", "1")]
    properties.ContentType = "text/plain"
    properties.CorrelationData = b"\x00\x01"
    properties.ResponseTopic = "answers"
    properties.MessageExpiryInterval = 3600
    began_s = time.time()
    subscriber.publish("five", b"mine")
    publisher.publish("five", b"yours", retain=True, properties=properties)
    assert subscriber.payloads(1) == [b"yours"]
    (message,) = subscriber.messages
    assert message.retain
    assert message.properties is not None
    received = message.properties.json()  # type: ignore[no-untyped-call]
    assert received["UserProperty"] == [("b", "1"), ("a", "2"), ("b", "1")]
    assert received["ContentType"] == "text/plain" and received["ResponseTopic"] == "answers"
    passed_s = math.ceil(time.time() - began_s)
    assert 3600 - passed_s <= received["MessageExpiryInterval"] <= 3600
