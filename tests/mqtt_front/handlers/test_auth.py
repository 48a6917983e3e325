"""SCRAM in AUTH packets, over the wire of a running front."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mqtt_front.codec import packets
from mqtt_front.codec.packets import Auth, Connack, Connect, Disconnect, Publish
from mqtt_front.codec.properties import Properties
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import MqttServer, mqtt_server
from tests.support.scram_client import ScramClient
from tests.support.waiting import wait_for
from timestone_access.passwords.password_file import remove_user, set_password
from timestone_access.settings import LockoutSettings

METHOD = "SCRAM-SHA-256"
CONNECT_S = 3600
"""Longer than a login takes on any machine; the test about this deadline lets the time pass itself."""


@pytest.fixture
def passwords(tmp_path: Path) -> Path:
    set_password(tmp_path / "passwords", "sensor", b"pencil", scram=True)
    set_password(tmp_path / "passwords", "other", b"rubber", scram=True)
    return tmp_path / "passwords"


@pytest.fixture
def guarded(tmp_path: Path, passwords: Path) -> Iterator[MqttServer]:
    with mqtt_server(
        tmp_path / "store",
        password_file=passwords,
        lockout=LockoutSettings(failures=3),
        connect_timeout_ms=CONNECT_S * 1000,
    ) as server:
        yield server


def said(data: bytes, method: str = METHOD) -> Properties:
    return Properties(authentication_method=method, authentication_data=data)


def begin(client: RawClient, scram: ScramClient, client_id: str = "s") -> bytes:
    """CONNECT, and the server's first message."""
    client.send(Connect(client_id, 5, properties=said(scram.first())))
    answer = client.expect(Auth)
    assert (answer.reason, answer.properties.authentication_method) == (0x18, METHOD)
    assert answer.properties.authentication_data is not None
    return answer.properties.authentication_data


def login(client: RawClient, user: str = "sensor", password: str = "pencil", client_id: str = "s") -> Connack:
    scram = ScramClient(user, password)
    client.send(Auth(0x18, said(scram.final(begin(client, scram, client_id)))))
    answer = client.expect(Connack)
    if answer.reason == 0:
        assert answer.properties.authentication_method == METHOD
        assert scram.trusts(answer.properties.authentication_data or b"")
    return answer


def test_scram_exchange_authenticates_a_client(guarded: MqttServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with RawClient(guarded.address, 5) as client:
        assert login(client).reason == 0
        client.subscribe("t")
        client.publish("t", b"x")
        client.receive(1)
    assert "user='sensor' by=scram" in caplog.text
    assert "pencil" not in caplog.text


def test_wrong_scram_proofs_are_refused_and_lock_out(guarded: MqttServer) -> None:
    for user, password, reason in [
        ("sensor", "x", 0x87),
        ("nobody", "x", 0x87),
        ("sensor", "x", 0x87),
        ("sensor", "x", 0x87),
    ]:
        with RawClient(guarded.address, 5) as client:
            assert login(client, user, password).reason == reason
            client.expect_closed()
    with RawClient(guarded.address, 5) as client:
        client.send(Connect("s", 5, properties=said(ScramClient("sensor", "pencil").first())))
        assert client.expect(Connack).reason == 0x8A


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        (Properties(authentication_method="SCRAM-SHA-1", authentication_data=b"n,,n=sensor,r=x"), 0x8C),
        (Properties(authentication_method=METHOD), 0x87),
        (said(b"nonsense"), 0x87),
    ],
)
def test_invalid_first_message_is_refused(guarded: MqttServer, properties: Properties, reason: int) -> None:
    with RawClient(guarded.address, 5) as client:
        client.send(Connect("s", 5, properties=properties))
        assert client.expect(Connack).reason == reason
        client.expect_closed()


@pytest.mark.parametrize(
    "early",
    [Publish("t", b"x"), packets.Pingreq(), packets.Subscribe(1, (packets.Request("t"),)), packets.Puback(1)],
)
def test_other_packets_during_the_exchange_are_refused(guarded: MqttServer, early: packets.Packet) -> None:
    received = guarded.status()["publishes_received"]
    with RawClient(guarded.address, 5) as client:
        begin(client, ScramClient("sensor", "pencil"))
        client.send(early)
        assert client.expect(Connack).reason == 0x82
        client.expect_closed()
    assert guarded.status()["publishes_received"] == received


def test_client_may_disconnect_during_the_exchange(guarded: MqttServer) -> None:
    for goodbye in (True, False):
        with RawClient(guarded.address, 5) as client:
            begin(client, ScramClient("sensor", "pencil"))
            if goodbye:
                client.send(Disconnect())
                client.expect_closed()
    wait_for(lambda: guarded.status()["connections"] == 0)


def test_stalled_exchange_ends_at_its_deadline(guarded: MqttServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with RawClient(guarded.address, 5) as client:
        begin(client, ScramClient("sensor", "pencil"))
        guarded.pass_time(CONNECT_S + 1)
        client.next_packet()
        client.expect_closed()
    assert "no AUTH in time" in caplog.text


@pytest.mark.slow
def test_auth_is_refused_with_another_method_or_without_an_exchange(guarded: MqttServer) -> None:
    with RawClient(guarded.address, 5) as client:
        scram = ScramClient("sensor", "pencil")
        final = scram.final(begin(client, scram))
        client.send(Auth(0x18, said(final, "OTHER")))
        assert client.expect(Connack).reason == 0x82
    with RawClient(guarded.address, 5) as client:
        client.send(Connect("plain", 5, True, 0, None, "sensor", b"pencil"))
        assert client.expect(Connack).reason == 0, "the same password does without an exchange"
        client.send(Auth(0x19, said(b"n,,n=sensor,r=x")))
        assert client.expect(Disconnect).reason == 0x82


def again(client: RawClient, user: str, password: str) -> packets.Packet | None:
    scram = ScramClient(user, password)
    client.send(Auth(0x19, said(scram.first())))
    answer = client.expect(Auth)
    client.publish("t", b"meanwhile")
    client.send(Auth(0x18, said(scram.final(answer.properties.authentication_data or b""))))
    return client.next_packet()


def test_connected_client_may_reauthenticate(guarded: MqttServer) -> None:
    with RawClient(guarded.address, 5) as client:
        login(client)
        answer = again(client, "sensor", "pencil")
        assert isinstance(answer, Auth) and answer.reason == 0
        client.publish("t", b"after")


@pytest.mark.parametrize(("user", "password"), [("sensor", "wrong"), ("other", "rubber")])
def test_failed_reauthentication_or_another_user_ends_the_connection(
    guarded: MqttServer, user: str, password: str
) -> None:
    with RawClient(guarded.address, 5) as client:
        login(client)
        answer = again(client, user, password)
        assert isinstance(answer, Disconnect) and answer.reason == 0x87
        client.expect_closed()


def test_connection_ends_when_its_user_is_removed_by_a_reload(guarded: MqttServer, passwords: Path) -> None:
    with RawClient(guarded.address, 5) as client:
        login(client)
        remove_user(passwords, "sensor")
        guarded.run(guarded.front.reload())
        assert client.expect(Disconnect).reason == 0x87


def test_method_is_unknown_without_scram_users(tmp_path: Path) -> None:
    with mqtt_server(tmp_path) as server, RawClient(server.address, 5) as client:
        client.send(Connect("s", 5, properties=said(b"n,,n=sensor,r=x")))
        assert client.expect(Connack).reason == 0x8C
