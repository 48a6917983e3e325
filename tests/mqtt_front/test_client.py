"""The client against our server, and against one that misbehaves."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mqtt_front.client import Client, Refused
from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.packets import Connack, Connect, Disconnect, Packet, Puback, Publish, Request
from mqtt_front.codec.properties import Properties
from tests.support.mqtt_server import MqttServer, mqtt_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqttServer]:
    with mqtt_server(tmp_path_factory.mktemp("client")) as running:
        yield running


def client(server: MqttServer, level: int, client_id: str = "", **connect: object) -> Client:
    return Client(server.address, Connect(client_id, level, **connect))  # type: ignore[arg-type]


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_arrive_in_order_and_once(server: MqttServer, level: int, qos: int) -> None:
    topic = f"order/{level}/{qos}"
    with client(server, level) as subscriber, client(server, level) as publisher:
        subscriber.subscribe([Request(topic, qos)])
        payloads = [b"%d" % number for number in range(500)]
        for payload in payloads:
            publisher.publish(Publish(topic, payload, qos))
        publisher.flush()
        found: list[bytes] = []
        while len(found) < len(payloads):
            message = subscriber.receive(10)
            assert message is not None
            assert (message.topic, message.qos) == (topic, qos)
            subscriber.acknowledge(message)
            found.append(message.payload)
        assert found == payloads
        assert subscriber.receive(0.1) is None


def test_message_that_is_not_acknowledged_comes_again(server: MqttServer) -> None:
    lasting = {"clean_start": False, "properties": Properties(session_expiry_interval=60)}
    with client(server, 5, "again", **lasting) as subscriber, client(server, 5) as publisher:
        subscriber.subscribe([Request("again", 1)])
        publisher.publish(Publish("again", b"1", 1))
        publisher.publish(Publish("again", b"2", 1))
        publisher.flush()
        first = subscriber.receive(10)
        assert first is not None
        subscriber.acknowledge(first)
    with client(server, 5, "again", **lasting) as subscriber:
        second = subscriber.receive(10)
        assert second is not None
        assert second.payload == b"2"


def test_refusals_say_what_was_refused_and_why(server: MqttServer, tmp_path: Path) -> None:
    with client(server, 5) as one:
        with pytest.raises(Refused, match="subscription to 'a/#/b' refused: topic filter invalid \\(0x8f\\)"):
            one.subscribe([Request("a/#/b", 0)])
        one.publish(Publish("a", b"x" * (1 << 21), 1))
        with pytest.raises(Refused, match="the server ended the connection: packet too large \\(0x95\\)"):
            one.flush()
    passwords = tmp_path / "passwords"
    passwords.write_text("")
    with mqtt_server(tmp_path, password_file=passwords) as closed:
        with pytest.raises(Refused, match="connection refused: not authorized \\(0x87\\)"):
            client(closed, 5)
        with pytest.raises(Refused, match="connection refused: not authorized \\(5\\)"):
            client(closed, 4)


@contextmanager
def puppet(act: Callable[[socket.socket], None]) -> Iterator[tuple[str, int]]:
    """A server that accepts one connection, answers CONNECT, and then follows the script."""

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(encode_packet(Connack(), 5))
            act(connection)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()
        finally:
            thread.join()


def sends(*sent: Packet) -> Callable[[socket.socket], None]:
    def act(connection: socket.socket) -> None:
        for packet in sent:
            for byte in encode_packet(packet, 5):
                connection.sendall(bytes((byte,)))
        while connection.recv(
            1 << 16
        ):  # closed with bytes unread, the client would lose what it has not read
            pass

    return act


def test_packets_may_come_byte_by_byte() -> None:
    with (
        puppet(sends(Publish("t", b"x" * 300), Publish("t", b"y"))) as address,
        Client(address, Connect(level=5)) as one,
    ):
        assert [(found.payload if (found := one.receive(10)) else None) for _ in range(2)] == [
            b"x" * 300,
            b"y",
        ]


def test_server_that_ends_the_connection_is_an_error() -> None:
    with (
        puppet(sends(Disconnect(0x8B))) as address,
        Client(address, Connect(level=5)) as one,
        pytest.raises(Refused, match="the server ended the connection: server shutting down \\(0x8b\\)"),
    ):
        one.receive(10)
    with (
        puppet(lambda connection: None) as address,
        Client(address, Connect(level=5)) as one,
        pytest.raises(ConnectionError, match="the server closed the connection"),
    ):
        one.receive(10)


def test_server_that_does_not_answer_is_an_error() -> None:
    def listen(connection: socket.socket) -> None:
        while connection.recv(1 << 16):
            pass

    with puppet(listen) as address, Client(address, Connect(level=5), timeout_s=0.2) as one:
        one.publish(Publish("t", b"x", 1))
        with pytest.raises(TimeoutError, match=r"the server did not answer within 0.2 s"):
            one.flush()


@pytest.mark.slow
def test_silent_server_is_pinged_and_has_to_answer() -> None:
    heard = bytearray()

    def listen(connection: socket.socket) -> None:
        while data := connection.recv(1 << 16):
            heard.extend(data)

    with (
        puppet(listen) as address,
        Client(address, Connect(level=5, keep_alive=1)) as one,
        pytest.raises(TimeoutError, match=r"the server did not answer a ping within 0.5 s"),
    ):
        one.receive(10)
    assert heard.startswith(b"\xc0\x00"), "PINGREQ"


def test_refused_publish_names_the_reason() -> None:
    with puppet(sends(Puback(1, 0x97))) as address, Client(address, Connect(level=5)) as one:
        one.publish(Publish("t", b"x", 1))
        with pytest.raises(Refused, match=r"publish refused: quota exceeded \(0x97\)"):
            one.flush()
