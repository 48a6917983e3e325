"""The accept loop: it survives running out of descriptors, bounds the connections, and logs the reason."""

import asyncio
import errno
import logging
import socket
import ssl
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import timestone
from mqtt_front import MqttFront, MqttSettings
from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.packets import Connect, Publish
from mqtt_front.codec.properties import Properties
from mqtt_front.listener import Listener
from mqtt_front.listener_settings import ListenerSettings
from tests.support.certificates import Authority
from tests.support.linked_client import Broker
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import MqttServer, mqtt_server
from tests.support.waiting import TIMEOUT_S, wait_for
from timestone.fronts import Arrived


@pytest.mark.parametrize("plain_asyncio", [False, True], ids=["uvloop", "asyncio"])
def test_listener_runs_in_any_event_loop(tmp_path: Path, plain_asyncio: bool) -> None:
    with mqtt_server(tmp_path, plain_asyncio=plain_asyncio) as server, RawClient(server.address) as client:
        client.connect("a")
        client.subscribe("t")
        client.send_bytes(b"")
        client.publish("t", b"x" * 500_000)
        assert len(client.receive(1)[0].payload) == 500_000


def test_burst_of_connections_is_accepted(server: MqttServer) -> None:
    with server.standing_still():
        clients = [RawClient(server.address) for _ in range(300)]
        for number, client in enumerate(clients):
            client.connect(f"burst-{number}")
        for client in clients:
            client.close()
    wait_for(lambda: server.status()["connections"] == 0)


@pytest.mark.parametrize("websocket", [False, True])
def test_socket_of_a_client_from_another_door_is_read_by_its_descriptor(websocket: bool) -> None:
    async def descriptor_of(client: Arrived) -> int:
        broker: Any = Broker()
        broker.connections = SimpleNamespace(count=0)
        settings = ListenerSettings(address="127.0.0.1:1883", websocket=websocket)
        admitted: Any = Listener(broker, settings, logging.getLogger()).admit(client)
        found: int = admitted._upper.descriptor
        return found

    client = Arrived(0, ("192.0.2.1", 5000), None)
    assert asyncio.run(descriptor_of(client)) == -1
    assert asyncio.run(descriptor_of(client._replace(descriptor=7))) == 7, "its door has ended the WebSocket"


@pytest.mark.slow
def test_listener_continues_after_running_out_of_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The accept call of the listening socket fails as the kernel lets it fail, for a while."""
    with mqtt_server(tmp_path) as server, RawClient(server.address) as inside:
        inside.connect("inside")
        (listener,) = server.front._listeners
        assert listener._socket is not None
        failures = [0]

        class Exhausted:
            def __init__(self, real: socket.socket) -> None:
                self.real = real

            def accept(self) -> object:
                if failures[0] < 2:
                    failures[0] += 1
                    raise OSError(errno.EMFILE, "Too many open files")
                return self.real.accept()

            def __getattr__(self, name: str) -> object:
                return getattr(self.real, name)

        monkeypatch.setattr(listener, "_socket", Exhausted(listener._socket))
        with RawClient(server.address) as waiting:
            waiting.connect("waiting")
            inside.expect_silence()
        assert failures == [2]
        assert "cannot accept connections: Too many open files" in caplog.text


def test_connections_far_over_the_limit_are_closed_without_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqtt_front.listener._REFUSED_AT_A_TIME", 2)
    with mqtt_server(tmp_path, connection_count=1) as server, server.standing_still():
        kept = [RawClient(server.address) for _ in range(3)]
        wait_for(lambda: server.status()["connections"] == 3)
        with RawClient(server.address) as outside:
            outside.expect_closed()
        for client in kept:
            client.close()


@pytest.mark.slow
def test_silent_connection_is_ended(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with mqtt_server(tmp_path, connect_timeout_ms=300) as server, RawClient(server.address) as silent:
        silent.expect_closed()
        assert "no CONNECT in time" in caplog.text


@pytest.mark.parametrize(
    ("first", "said"), [(b"\x16\x03\x01\x02\x00\x01", "TLS"), (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP")]
)
def test_other_protocol_gets_one_log_line_at_once(
    server: MqttServer, caplog: pytest.LogCaptureFixture, first: bytes, said: str
) -> None:
    caplog.set_level("INFO")
    with RawClient(server.address) as stranger:
        stranger.send_bytes(first)
        stranger.expect_closed()
        port = stranger.socket.getsockname()[1]
    lines = [record.getMessage() for record in caplog.records if f":{port} " in record.getMessage()]
    assert len(lines) == 1 and said in lines[0]


def test_start_fails_when_the_address_is_in_use(server: MqttServer, tmp_path: Path) -> None:
    host, port = server.address
    with pytest.raises(OSError, match="in use"), mqtt_server(tmp_path, listen=f"{host}:{port}"):
        pass


def test_failed_start_leaves_nothing_running(server: MqttServer, tmp_path: Path) -> None:
    """A failed start is not followed by a stop; a program that continues would save for it and answer its clients
    permanently."""
    host, port = server.address
    settings = MqttSettings(listen="127.0.0.1:0", listeners=(ListenerSettings(address=f"{host}:{port}"),))

    async def start(front: MqttFront) -> set[asyncio.Task[Any]]:
        with pytest.raises(OSError, match=f"cannot listen on {host}:{port}"):
            await front.start()
        return asyncio.all_tasks() - {asyncio.current_task()}

    with timestone.open(tmp_path / "other") as store:
        front = MqttFront(store, settings, log=logging.getLogger("timestone.mqtt"))
        assert not asyncio.run(start(front))
        assert front.status()["address"] == "127.0.0.1:0"  # as it was requested: there is no listener


def _websocket(door: socket.socket) -> None:
    door.sendall(
        b"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    assert door.recv(4096).startswith(b"HTTP/1.1 101")


def _framed(data: bytes) -> bytes:
    """A binary frame; the mask of zeros leaves the payload as it is."""
    return b"\x82" + bytes([0x80 | len(data)]) + bytes(4) + data


@pytest.mark.parametrize("level", [3, 4, 5])
def test_each_websocket_frame_holds_something_and_a_text_frame_is_answered_by_1003(
    tmp_path: Path, level: int
) -> None:
    """CONNACK was followed by an empty frame."""
    listeners = (ListenerSettings(address="127.0.0.1:0", websocket=True),)
    connect = _framed(encode_packet(Connect("texts", level), level))
    received = b""
    with (
        mqtt_server(tmp_path, listen=None, listeners=listeners) as server,
        socket.create_connection(server.address, timeout=TIMEOUT_S) as client,
    ):
        _websocket(client)
        client.sendall(connect + b"\x81\x84" + bytes(4) + b"text")
        while data := client.recv(4096):
            received += data
    frames = []
    while received:
        opcode, length = received[0], received[1]
        frames.append((opcode, received[2 : 2 + length]))
        received = received[2 + length :]
    assert [opcode for opcode, _ in frames] == [0x82, 0x88], frames
    assert frames[0][1][0] == 0x20, "CONNACK"
    assert int.from_bytes(frames[1][1][:2], "big") == 1003


@pytest.mark.parametrize("plain_asyncio", [False, True], ids=["uvloop", "asyncio"])
def test_client_that_continues_sending_can_read_its_disconnect_reason(
    tmp_path: Path, plain_asyncio: bool
) -> None:
    """The connection used to be closed at once: the next bytes of the client met a reset, and a client that sends
    before it reads never saw the reason."""
    authority = Authority(tmp_path)
    own = authority.issue_server()
    tls = {"address": "127.0.0.1:0", "certificate": own.path, "key": own.key_path}
    listeners = (
        ListenerSettings(address="127.0.0.1:0", websocket=True),
        ListenerSettings(**tls),  # type: ignore[arg-type]
        ListenerSettings(**tls, websocket=True),  # type: ignore[arg-type]
    )
    context = ssl.create_default_context(cafile=str(authority.path))
    connect = encode_packet(Connect("busy", 5, True, 0, None, None, None, Properties()), 5)
    wrong = encode_packet(Publish("t", b"", properties=Properties(topic_alias=9999)), 5)
    with (
        mqtt_server(tmp_path / "data", plain_asyncio=plain_asyncio, listeners=listeners) as server,
        server.standing_still(),
    ):
        all_listeners = server.front._settings.all_listeners
        for settings, door in zip(all_listeners, server.status()["listeners"], strict=True):
            host, _, port = door["address"].rpartition(":")
            with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as plain:
                client = context.wrap_socket(plain, server_hostname=host) if settings.certificate else plain
                framed = _framed if settings.websocket else bytes
                if settings.websocket:
                    _websocket(client)
                client.sendall(framed(connect))
                assert b"\x20" in client.recv(4096)
                client.sendall(framed(wrong))
                wait_for(lambda: server.status()["connections"] == 0)
                for _ in range(5):
                    client.sendall(framed(b"\x62\x02\x00\x01") * 100)
                    time.sleep(0.01)
                received = b""
                while more := client.recv(4096):
                    received += more
                assert b"topic alias 9999; the limit is" in received, door
                client.close()
        wait_for(lambda: not server.call(lambda: server.front._broker.connections.links))  # type: ignore[union-attr]
