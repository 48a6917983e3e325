"""Listeners with TLS, client certificates and WebSocket, with real clients and with invalid input."""

import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest

from mqtt_front.codec.packets import Connack, Connect
from mqtt_front.listener_settings import ListenerSettings
from tests.support.certificates import Authority, Certified
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import MqttServer, mqtt_server
from tests.support.paho_client import PahoClient
from tests.support.waiting import TIMEOUT_S, wait_for
from timestone_access.passwords.password_file import set_password

ALICE = ("alice", "wonderland-1")
ANY = "127.0.0.1:0"
CONNECT_S = 3600
"""Longer than a handshake and a login take on any machine; the test about this deadline lets the time pass itself."""


@dataclass(frozen=True)
class Secured:
    """A front with a listener of each kind, and its certificates."""

    server: MqttServer
    authority: Authority
    client: Certified
    expired: Certified
    revoked: Certified
    stranger: Certified

    def address(self, name: str) -> tuple[str, int]:
        names = ["plain", "tls", "mutual", "websocket", "wss", "open"]
        listener = self.server.status()["listeners"][names.index(name)]
        host, _, port = listener["address"].rpartition(":")
        return host, int(port)

    def context(self, certified: Certified | None = None, authority: Path | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=authority or self.authority.path)
        if certified is not None:
            context.load_cert_chain(certified.path, certified.key_path)
        return context

    def raw(self, name: str, context: ssl.SSLContext) -> RawClient:
        """A client that has shaken hands. Raises what the handshake raises."""
        client = RawClient(self.address(name))
        client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
        return client


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    path = tmp_path_factory.mktemp("pki")
    authority = Authority(path)
    own = authority.issue_server()
    set_password(path / "passwords", ALICE[0], ALICE[1].encode())
    revoked = authority.issue("revoked")
    tls: dict[str, Any] = {"address": ANY, "certificate": own.path, "key": own.key_path}
    mutual = tls | {"client_ca": authority.path, "client_crl": authority.revoke(revoked)}
    with mqtt_server(
        tmp_path_factory.mktemp("mqtt"),
        plain_asyncio=request.param == "asyncio",
        password_file=path / "passwords",
        connect_timeout_ms=CONNECT_S * 1000,
        listeners=(
            ListenerSettings(**tls),
            ListenerSettings(**mutual, require_certificate=True, user_from="cn"),
            ListenerSettings(address=ANY, websocket=True),
            ListenerSettings(**tls, websocket=True),
            ListenerSettings(address=ANY, websocket=True, allow_anonymous=True),
        ),
    ) as server:
        yield Secured(
            server,
            authority,
            authority.issue("device-7"),
            authority.issue("device-8", days=-2),
            revoked,
            Authority(path, "stranger").issue("device-9"),
        )


def lines_about(caplog: pytest.LogCaptureFixture, port: int) -> list[str]:
    return [one.getMessage() for one in caplog.records if f":{port} " in one.getMessage()]


def round_trip(client: PahoClient, topic: str) -> None:
    """Something large and something small, there and back."""
    assert client.subscribe(topic) == 1
    for payload in (b"small", b"x" * 300_000):
        assert client.publish(topic, payload) == 0
        assert client.receive() == (topic, payload)


@pytest.mark.slow
@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize(
    ("name", "transport", "tls"),
    [("tls", "tcp", True), ("websocket", "websockets", False), ("wss", "websockets", True)],
)
def test_paho_connects_to_each_kind_of_listener(
    secured: Secured, name: str, transport: str, tls: bool, level: int
) -> None:
    def prepare(client: paho.Client) -> None:
        if tls:
            client.tls_set_context(secured.context())

    with PahoClient(f"{name}-{level}", level=level, transport=transport, prepare=prepare) as client:
        assert client.connect(("localhost", secured.address(name)[1]), *ALICE) == 0
        round_trip(client, f"secure/{name}/{level}")
    with PahoClient(f"{name}-wrong", level=level, transport=transport, prepare=prepare) as client:
        assert client.connect(("localhost", secured.address(name)[1]), ALICE[0], "guess") == (0x86)


def test_certificate_names_the_user(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    context = secured.context(secured.client)
    with PahoClient("mutual", prepare=lambda client: client.tls_set_context(context)) as client:
        assert client.connect(("localhost", secured.address("mutual")[1])) == 0
        round_trip(client, "secure/mutual")
    assert "user='device-7' by=certificate" in caplog.text


@pytest.mark.parametrize(
    ("which", "said"),
    [
        ("expired", "its certificate has expired"),
        ("stranger", "its certificate is signed by an unknown CA"),
        ("revoked", "its certificate is revoked"),
        ("", "it has no certificate, and this listener wants one"),
    ],
)
def test_refused_certificate_gets_one_log_line_and_an_alert(
    secured: Secured, caplog: pytest.LogCaptureFixture, which: str, said: str
) -> None:
    caplog.set_level("INFO")
    context = secured.context(getattr(secured, which) if which else None)
    with socket.create_connection(secured.address("mutual")) as client:
        port = client.getsockname()[1]
        with pytest.raises(ssl.SSLError, match="ALERT"):
            # In TLS 1.3 the client hears of it with the first thing that it reads.
            context.wrap_socket(client, server_hostname="localhost").recv(1)
    wait_for(lambda: len(lines_about(caplog, port)) == 1)
    assert lines_about(caplog, port) == [f"127.0.0.1:{port} refused: {said}"]


def test_client_that_distrusts_the_server_gets_one_log_line(
    secured: Secured, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level("INFO")
    with socket.create_connection(secured.address("tls")) as client:
        port = client.getsockname()[1]
        context = secured.context(authority=Authority(tmp_path, "another").path)
        with pytest.raises(ssl.SSLCertVerificationError):
            context.wrap_socket(client, server_hostname="localhost")
        wait_for(lambda: len(lines_about(caplog, port)) == 1)
    assert lines_about(caplog, port) == [
        f"127.0.0.1:{port} refused: it does not know the CA of this server's certificate"
    ]


CONNECT = bytes.fromhex("100c00044d51545404020000") + b"\0\0"
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
MISTAKES = {
    "TLS on the plain port": ("plain", HELLO, "TLS handshake, on a port without TLS"),
    "HTTP on the plain port": ("plain", REQUEST, "HTTP request"),
    "MQTT on the TLS port": ("tls", CONNECT, "it sends MQTT without TLS, on a port with TLS"),
    "HTTP on the TLS port": ("tls", REQUEST, "it sends HTTP without TLS, on a port with TLS"),
    "MQTT on the WebSocket port": (
        "websocket",
        CONNECT,
        "it sends MQTT without WebSocket, on a port with WebSocket",
    ),
    "TLS on the WebSocket port": ("websocket", HELLO, "it begins a TLS handshake, on a port without TLS"),
    "a browser on the WebSocket port": ("websocket", REQUEST, "not a web server"),
    "WebSocket without TLS": ("wss", REQUEST, "it sends HTTP without TLS, on a port with TLS"),
}


@pytest.mark.parametrize(("name", "sent", "said"), MISTAKES.values(), ids=MISTAKES.keys())
def test_wrong_protocol_gets_one_log_line_at_once(
    secured: Secured, caplog: pytest.LogCaptureFixture, name: str, sent: bytes, said: str
) -> None:
    caplog.set_level("INFO")
    with RawClient(secured.address(name)) as client:
        client.send_bytes(sent)
        while True:
            try:
                if not client.socket.recv(4096):
                    break
            except ConnectionResetError:
                break
        port = client.socket.getsockname()[1]
    wait_for(lambda: bool(lines_about(caplog, port)))
    (line,) = lines_about(caplog, port)
    assert said in line and f"127.0.0.1:{port}" in line


def test_stalled_handshakes_end_at_their_deadline_and_delay_no_client(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    stalled = [RawClient(secured.address(name)) for name in ("tls", "wss", "websocket") for _ in range(30)]
    for number, client in enumerate(stalled):
        client.send_bytes((HELLO, REQUEST[:5])[number >= 60][: 1 + number % 5])
    with secured.raw("tls", secured.context()) as quick:
        quick.send(Connect("quick", 4, True, 0, None, ALICE[0], ALICE[1].encode()))
        assert quick.expect(Connack).reason == 0
        assert "handshake in time" not in caplog.text, "it did not wait for the others"
        wait_for(lambda: secured.server.status()["connections"] == len(stalled) + 1)
    secured.server.pass_time(CONNECT_S + 1)
    for client in stalled:
        client.expect_closed()
        client.close()
    assert "no TLS handshake in time" in caplog.text
    assert "no WebSocket handshake in time" in caplog.text


def test_port_scan_is_not_logged(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    ports = []
    for name in ("plain", "tls", "websocket"):
        with socket.create_connection(secured.address(name)) as client:
            ports.append(client.getsockname()[1])
    wait_for(lambda: secured.server.status()["connections"] == 0)
    assert [lines_about(caplog, port) for port in ports] == [[], [], []]


def test_many_handshakes_run_concurrently(secured: Secured) -> None:
    failures: list[object] = []

    def one(number: int) -> None:
        try:
            with secured.raw("tls", secured.context()) as client:
                client.send(Connect(f"many-{number}", 4, True, 0, None, ALICE[0], ALICE[1].encode()))
                assert client.expect(Connack).reason == 0
                client.subscribe(f"many/{number}")
                client.publish(f"many/{number}", b"x" * 50_000)
                client.receive(1)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert failures == []


def test_page_of_another_origin_is_refused_on_an_anonymous_listener(secured: Secured) -> None:
    def request(name: str, origin: str) -> bytes:
        with socket.create_connection(secured.address(name)) as client:
            client.sendall(
                b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
                b"Sec-WebSocket-Protocol: mqtt\r\nOrigin: " + origin.encode() + b"\r\n\r\n"
            )
            return client.recv(4096).partition(b"\r\n")[0]

    assert b" 403 " in request("open", "https://example.org")
    assert b" 101 " in request("open", "http://localhost:8000")
    assert b" 101 " in request("websocket", "https://example.org"), "there it has to log in anyway"


@pytest.mark.slow
def test_slow_reader_over_tls_and_websocket_has_a_bounded_buffer(secured: Secured) -> None:
    """Far more than the sockets hold is published to a subscriber that reads only later; it misses nothing."""
    with secured.raw("tls", secured.context()) as slow, secured.raw("tls", secured.context()) as fast:
        for client, name in ((slow, "slow"), (fast, "fast")):
            client.send(Connect(name, 4, True, 0, None, ALICE[0], ALICE[1].encode()))
            assert client.expect(Connack).reason == 0
        slow.subscribe("slow")
        for number in range(100):
            fast.publish("slow", b"%03d" % number + b"x" * 100_000, packet_id=number + 1)
        assert [one.payload[:3] for one in slow.receive(100)] == [b"%03d" % number for number in range(100)]


def test_front_logs_its_listeners(secured: Secured) -> None:
    lines = secured.server.front.describe()[:6]
    for line, name, words in zip(
        lines,
        ("plain", "tls", "mutual", "websocket", "wss", "open"),
        (
            ", passwords",
            " (TLS), ",
            "client certificates, passwords",
            " (WebSocket), ",
            " (WebSocket over TLS), ",
            "passwords, anonymous",
        ),
        strict=True,
    ):
        assert f"on 127.0.0.1:{secured.address(name)[1]}" in line and words in line
