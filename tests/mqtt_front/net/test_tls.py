"""The TLS adapter with OpenSSL's own client on the other side, in memory."""

import ssl
from dataclasses import dataclass
from pathlib import Path

import pytest

from mqtt_front.listener_settings import ListenerSettings
from mqtt_front.net.tls import HANDSHAKE, TlsAdapter
from tests.support.certificates import Authority, Certified
from tests.support.layered import FakeLink, FakeTransport, feed
from tests.support.manual_loop import ManualLoop
from timestone_access.tls_context import tls_context

PIECES = [1, 100, 1 << 16]


@dataclass(frozen=True)
class Pki:
    """The certificates of these tests."""

    authority: Authority
    server: Certified
    client: Certified
    expired: Certified
    stranger: Certified

    def context(self, **settings: object) -> ssl.SSLContext:
        own = {"address": "127.0.0.1:0", "certificate": self.server.path, "key": self.server.key_path}
        return tls_context(ListenerSettings(**{**own, **settings}), protocols=["mqtt"])  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    path = tmp_path_factory.mktemp("pki")
    authority = Authority(path)
    return Pki(
        authority,
        authority.issue_server(),
        authority.issue("device-7"),
        authority.issue("device-8", days=-2),
        Authority(path, "stranger").issue("device-9"),
    )


class Client:
    """A TLS client, its layer on the server's side, and the wire between them."""

    def __init__(
        self,
        pki: Pki,
        context: ssl.SSLContext,
        *,
        certified: Certified | None = None,
        authority: Path | None = None,
        newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
        name_kind: str | None = None,
        piece_bytes: int = 1 << 16,
    ) -> None:
        own = ssl.create_default_context(cafile=authority or pki.authority.path)
        own.maximum_version = newest
        if certified is not None:
            own.load_cert_chain(certified.path, certified.key_path)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = own.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.loop, self.link, self.transport = ManualLoop(), FakeLink(), FakeTransport()
        self.layer = TlsAdapter(self.link, self.link, context, self.loop.call_soon, name_kind=name_kind)
        self.layer.connection_made(self.transport)
        self.piece_bytes = piece_bytes
        self.fault: ssl.SSLError | None = None

    def exchange(self) -> None:
        """Carry bytes both ways until none are left."""
        while True:
            sent, received = self.outgoing.read(), self.transport.take()
            feed(self.layer, sent, self.piece_bytes)
            self.incoming.write(received)
            if not sent and not received:
                return
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                self.fault = error

    def shake_hands(self) -> "Client":
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            self.exchange()
        return self

    def send(self, data: bytes) -> None:
        self.tls.write(data)
        self.exchange()

    def receive(self) -> bytes:
        self.incoming.write(self.transport.take())
        found = bytearray()
        while True:
            try:
                data = self.tls.read(1 << 16)
            except ssl.SSLWantReadError:
                return bytes(found)
            except ssl.SSLError as error:
                self.fault = error
                return bytes(found)
            if not data:
                return bytes(found) + b"(end)"
            found += data


@pytest.mark.parametrize("piece_bytes", PIECES)
@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_bytes_pass_both_ways_in_any_pieces(pki: Pki, newest: ssl.TLSVersion, piece_bytes: int) -> None:
    client = Client(pki, pki.context(), newest=newest, piece_bytes=piece_bytes).shake_hands()
    assert client.link.awaited == "CONNECT"
    client.send(b"hello" * 10_000)
    assert client.link.received == b"hello" * 10_000
    client.layer.write(b"world" * 50_000)
    assert client.receive() == b"world" * 50_000
    assert (
        client.tls.version() == {ssl.TLSVersion.TLSv1_2: "TLSv1.2", ssl.TLSVersion.TLSv1_3: "TLSv1.3"}[newest]
    )


def test_protocol_knows_address_and_state_before_the_handshake(pki: Pki) -> None:
    client = Client(pki, pki.context())
    assert client.link.transport is client.layer
    assert client.layer.get_extra_info("peername") == ("192.0.2.1", 1234)
    assert client.link.awaited == HANDSHAKE
    client.layer.write(b"never received")
    assert client.transport.take() == b""


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00", "it sends MQTT without TLS, on a port with TLS"),
        (b"\x10", "it sends MQTT without TLS, on a port with TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "it sends HTTP without TLS, on a port with TLS"),
        (b"P", "it sends HTTP without TLS, on a port with TLS"),
        (b"\x00\x00", "its first byte is 0x00, which is not TLS, on a port with TLS"),
        (b"\x16\x99\x99 and so on, not a bit of TLS", "it does not speak TLS"),
    ],
)
def test_client_without_tls_is_recognised_at_the_first_byte(pki: Pki, start: bytes, said: str) -> None:
    client = Client(pki, pki.context())
    feed(client.layer, start)
    assert client.link.told == [said]
    assert client.transport.ended == "closed"
    feed(client.layer, start)
    assert client.link.told == [said]


REFUSED = {
    "none": (None, "it has no certificate, and this listener wants one", "CERTIFICATE_REQUIRED"),
    "expired": ("expired", "its certificate has expired", "CERTIFICATE_EXPIRED"),
    "stranger": ("stranger", "its certificate is signed by an unknown CA", "UNKNOWN_CA"),
}


@pytest.mark.parametrize(("which", "said", "alert"), REFUSED.values(), ids=REFUSED.keys())
def test_client_with_a_refused_certificate_gets_an_alert(
    pki: Pki, which: str | None, said: str, alert: str
) -> None:
    context = pki.context(client_ca=pki.authority.path, require_certificate=True)
    client = Client(pki, context, certified=getattr(pki, which) if which else None).shake_hands()
    assert client.link.told == [said]
    assert client.transport.ended == "closed"
    client.receive()
    assert client.fault is not None and alert in str(client.fault.reason)


def test_revoked_certificate_is_refused_and_others_accepted(pki: Pki) -> None:
    revoked = pki.authority.issue("revoked")
    context = pki.context(
        client_ca=pki.authority.path, client_crl=pki.authority.revoke(revoked), require_certificate=True
    )
    assert Client(pki, context, certified=revoked).shake_hands().link.told == ["its certificate is revoked"]
    assert Client(pki, context, certified=pki.client).shake_hands().link.told == []


def test_alert_for_an_unknown_authority_is_logged(pki: Pki, tmp_path: Path) -> None:
    client = Client(pki, pki.context(), authority=Authority(tmp_path, "another").path).shake_hands()
    assert client.link.told == ["it does not know the CA of this server's certificate"]


def test_alert_for_an_expired_server_certificate_is_logged(pki: Pki) -> None:
    old = pki.authority.issue_server(days=-3, file="old-server")
    client = Client(pki, pki.context(certificate=old.path, key=old.key_path)).shake_hands()
    assert client.link.told == ["it says that this server's certificate has expired"]


def test_old_versions_of_tls_are_refused(pki: Pki) -> None:
    client = Client(pki, pki.context(tls_minimum="1.3"), newest=ssl.TLSVersion.TLSv1_2).shake_hands()
    assert client.link.told == ["it speaks no version of TLS that is allowed here"]


@pytest.mark.parametrize(("name_kind", "expected"), [("cn", "device-7"), (None, None)])
def test_certificate_name_is_available_to_the_protocol(
    pki: Pki, name_kind: str | None, expected: str | None
) -> None:
    client = Client(pki, pki.context(client_ca=pki.authority.path), certified=pki.client, name_kind=name_kind)
    assert client.shake_hands().layer.get_extra_info("certificate_name") == expected


def test_certificate_is_optional_unless_required(pki: Pki) -> None:
    client = Client(pki, pki.context(client_ca=pki.authority.path), name_kind="cn").shake_hands()
    assert client.link.told == []
    assert client.layer.get_extra_info("certificate_name") is None


def test_certificate_without_the_required_name_is_refused(pki: Pki) -> None:
    client = Client(pki, pki.context(client_ca=pki.authority.path), certified=pki.client, name_kind="san")
    assert client.shake_hands().link.told == ["the certificate of the client has no san to use as user name"]
    assert client.transport.ended == "closed"


def test_disconnect_during_the_handshake_is_logged_only_after_it_began(pki: Pki) -> None:
    started, silent = Client(pki, pki.context()), Client(pki, pki.context())
    feed(started.layer, b"\x16\x03\x01\x02\x00\x01")
    for client in (started, silent):
        assert client.layer.eof_received() is False
        client.layer.connection_lost(None)
    assert started.link.told == [f"the client disconnected during the {HANDSHAKE}", "lost: None"]
    assert silent.link.told == ["lost: None"], "a load balancer that looks whether the port is open"


def test_close_sends_close_notify(pki: Pki) -> None:
    client = Client(pki, pki.context()).shake_hands()
    client.layer.write(b"bye")
    client.layer.close()
    client.layer.close()
    client.layer.write(b"more")
    assert client.receive() == b"bye(end)"
    assert client.transport.ended == "closed"
    assert client.layer.is_closing()


def test_bytes_after_our_close_notify_are_passed_up_for_discarding(pki: Pki) -> None:
    client = Client(pki, pki.context()).shake_hands()
    client.layer.write(b"bye")
    client.layer.write_eof()
    client.layer.write(b"more")
    assert client.receive() == b"bye(end)"
    client.tls.write(b"a secret")
    sent = client.outgoing.read()
    feed(client.layer, sent, 7)
    assert client.link.received == sent
    assert client.transport.ended == "half-closed"


def test_close_notify_of_the_client_ends_the_stream_after_earlier_bytes(pki: Pki) -> None:
    client = Client(pki, pki.context()).shake_hands()
    client.tls.write(b"last words")
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    client.exchange()
    client.loop.settle()
    assert client.link.received == b"last words"
    assert client.transport.ended == "closed"


def test_paused_protocol_receives_nothing_and_loses_nothing(pki: Pki) -> None:
    client = Client(pki, pki.context()).shake_hands()
    client.link.buffer = memoryview(bytearray(1000))
    client.link.pause_after = 2500
    client.piece_bytes = 1000
    client.send(b"x" * 10_000)
    assert len(client.link.received) == 3000
    assert not client.transport.reading
    client.link.transport.resume_reading()
    assert len(client.link.received) == 3000, "not in the middle of the caller's work"
    client.loop.settle()
    assert client.link.received == b"x" * 10_000
    assert client.transport.reading


def test_changed_bytes_abort_the_connection(pki: Pki) -> None:
    client = Client(pki, pki.context()).shake_hands()
    client.tls.write(b"hello")
    record = bytearray(client.outgoing.read())
    record[-1] ^= 1
    feed(client.layer, bytes(record))
    assert client.transport.ended == "aborted"
    assert client.link.received == b""


def test_socket_calls_are_passed_on(pki: Pki) -> None:
    client = Client(pki, pki.context()).shake_hands()
    client.layer.set_write_buffer_limits(high=77)
    client.layer.pause_writing()
    client.layer.resume_writing()
    client.layer.abort()
    client.layer.connection_lost(OSError("gone"))
    assert client.transport.high == 77
    assert client.transport.ended == "aborted"
    assert client.link.told == ["pause", "resume", "lost: gone"]
    assert client.layer.get_extra_info("peername") is None


def test_random_bytes_after_a_handshake_end_only_that_connection(pki: Pki) -> None:
    for seed in range(30):
        client = Client(pki, pki.context()).shake_hands()
        feed(client.layer, bytes((seed * 7 + n * 13) % 256 for n in range(200)), 17)
        assert client.transport.ended in ("", "aborted")
        assert client.link.received == b""
