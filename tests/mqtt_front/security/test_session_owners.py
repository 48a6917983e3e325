"""A session belongs to the user that began it: another user with the same client id does not affect it."""

import json
import signal
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
    Will,
)
from mqtt_front.codec.properties import Properties
from mqtt_front.feeds.group_store import KEY_PREFIX
from mqtt_front.sessions.session import session_key
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_process import MqttProcess
from tests.support.mqtt_server import mqtt_server
from tests.support.step_clock import StepClock
from tests.support.waiting import wait_for
from timestone_access.passwords.password_file import set_password

ENDS = pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
LASTING = Properties(session_expiry_interval=3600)


@pytest.fixture
def users(tmp_path: Path) -> dict[str, Any]:
    """Settings with the users alice and bob."""
    for user in ("alice", "bob"):
        set_password(tmp_path / "passwords", user, user.encode())
    return {"password_file": tmp_path / "passwords"}


@pytest.fixture(params=[4, 5])
def level(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def enter(
    address: tuple[str, int],
    user: str | None,
    *,
    level: int = 5,
    clean: bool = False,
    will: Will | None = None,
) -> tuple[RawClient, Connack]:
    """A client with the id `shared` and a session that outlives it, unless it is a clean one of MQTT 3."""
    client = RawClient(address, level)
    properties = LASTING if level == 5 else Properties()
    password = None if user is None else user.encode()
    return client, client.connect(
        "shared", clean=clean, will=will, user=user, password=password, properties=properties
    )


def publish(address: tuple[str, int], topic: str, *payloads: bytes) -> None:
    with RawClient(address) as client:
        client.connect("publisher", user="alice", password=b"alice")
        for payload in payloads:
            client.publish(topic, payload)


@pytest.mark.parametrize("clean", [False, True])
def test_a_session_stays_when_another_user_names_its_client_id(
    tmp_path: Path, users: dict[str, Any], level: int, clean: bool
) -> None:
    with mqtt_server(tmp_path / "data", **users) as server:
        alice, answer = enter(server.address, "alice", level=level)
        assert not answer.session_present
        alice.subscribe("a")
        alice.close()
        publish(server.address, "a", b"1", b"2")
        bob, answer = enter(server.address, "bob", level=level, clean=clean)
        assert answer.reason == 0 and not answer.session_present
        bob.expect_silence()
        bob.close()
        alice, answer = enter(server.address, "alice", level=level)
        assert answer.session_present
        assert [one.payload for one in alice.receive(2)] == [b"1", b"2"]
        alice.close()
        bob, answer = enter(server.address, "bob", level=level)
        assert answer.session_present is not (clean and level == 4)
        bob.close()


def test_a_connection_stays_when_another_user_names_its_client_id(
    tmp_path: Path, users: dict[str, Any], level: int
) -> None:
    with mqtt_server(tmp_path / "data", **users) as server:
        will = Will("gone", b"alice", 1, False)
        alice, _ = enter(server.address, "alice", level=level, will=will)
        alice.subscribe("a", "gone")
        bob, _ = enter(server.address, "bob", level=level)
        publish(server.address, "a", b"both are there")
        assert [one.payload for one in alice.receive(1)] == [b"both are there"]
        alice.expect_silence()
        bob.expect_silence()
        again, answer = enter(server.address, "alice", level=level)
        assert answer.session_present
        if level == 5:
            assert alice.expect(Disconnect).reason == 0x8E
        alice.expect_closed()
        assert [one.payload for one in again.receive(1)] == [b"alice"]
        bob.expect_silence()
        again.close()
        bob.close()


def test_a_delayed_will_waits_when_another_user_names_its_client_id(
    tmp_path: Path, users: dict[str, Any]
) -> None:
    with mqtt_server(tmp_path / "data", clock=StepClock(), **users) as server, server.standing_still():
        will = Will("gone", b"alice", 1, False, Properties(will_delay_interval=60))
        enter(server.address, "alice", will=will)[0].close()
        wait_for(lambda: server.status()["sessions_connected"] == 0)
        enter(server.address, "bob", clean=True)[0].close()
        enter(server.address, "alice")[0].close()
        server.pass_time(120)
    with timestone.view(tmp_path / "data") as view:
        assert view.log("mqtt").end_offset == 0


def test_no_local_distinguishes_users_when_they_share_a_client_id(
    tmp_path: Path, users: dict[str, Any]
) -> None:
    with mqtt_server(tmp_path / "data", **users) as server:
        alice, _ = enter(server.address, "alice")
        bob, _ = enter(server.address, "bob")
        for client in (alice, bob):
            client.subscribe(Request("a", 1, no_local=True))
        alice.publish("a", b"alice")
        bob.publish("a", b"bob")
        assert [one.payload for one in alice.receive(1)] == [b"bob"]
        assert [one.payload for one in bob.receive(1)] == [b"alice"]
        alice.close()
        bob.close()


@pytest.mark.crash
@ENDS
def test_sessions_of_two_users_are_restored_after_a_restart(
    tmp_path: Path, users: dict[str, Any], end: signal.Signals
) -> None:
    """A publish at QoS 2 under one packet id by both users counts once for each."""
    with MqttProcess(tmp_path / "data", **users) as server:
        for user in ("alice", "bob"):
            client, _ = enter(server.address, user)
            client.subscribe(f"{user}/#")
            client.send(Publish(f"{user}/exact", user.encode(), 2, packet_id=7))
            packets = {type(client.next_packet()), type(client.next_packet())}
            assert packets == {Pubrec, Publish}
        server.end(end)
    with MqttProcess(tmp_path / "data", **users) as server:
        for user in ("alice", "bob"):
            client, answer = enter(server.address, user)
            assert answer.session_present
            assert [one.payload for one in client.receive(1)] == [user.encode()]
            client.send(Publish(f"{user}/exact", user.encode(), 2, duplicate=True, packet_id=7))
            client.expect(Pubrec)
            client.send(Pubrel(7))
            client.expect(Pubcomp)
            client.expect_silence()
            client.close()


@pytest.mark.crash
@ENDS
def test_queue_distinguishes_members_when_users_share_a_client_id(
    tmp_path: Path, users: dict[str, Any], end: signal.Signals
) -> None:
    """What alice has in flight at QoS 2 is hers, also while bob is a member under her client id."""
    asked = Request("$queue/q/work", 2)
    with MqttProcess(tmp_path / "data", **users) as server:
        alice, _ = enter(server.address, "alice")
        alice.subscribe(asked)
        with RawClient(server.address) as publisher:
            publisher.connect("publisher", user="alice", password=b"alice")
            publisher.send(Publish("work", b"hers", 2, packet_id=1))
            publisher.expect(Pubrec)
        assert [one.payload for one in alice.receive(1, acknowledge=False)] == [b"hers"]
        server.end(end)
    with MqttProcess(tmp_path / "data", **users) as server:
        bob, _ = enter(server.address, "bob", clean=True)
        bob.subscribe(asked)
        bob.expect_silence()
        alice, answer = enter(server.address, "alice")
        assert answer.session_present
        again = alice.receive(1, acknowledge=False)[0]
        assert (again.payload, again.duplicate) == (b"hers", True)
        server.end(signal.SIGTERM)
    with timestone.view(tmp_path / "data") as view:
        group = json.loads(view.documents("mqtt.session")[f"{KEY_PREFIX}mqtt/$queue/q/work"])
    assert group["members"] == [session_key("shared", "alice"), session_key("shared", "bob")]


def test_sessions_of_two_users_expire_separately_when_they_share_a_client_id(
    tmp_path: Path, users: dict[str, Any]
) -> None:
    with mqtt_server(tmp_path / "data", clock=StepClock(), **users) as server, server.standing_still():
        for user, expiry_s in (("alice", 100), ("bob", 1000)):
            with RawClient(server.address, 5) as client:
                lasting = Properties(session_expiry_interval=expiry_s)
                client.connect("shared", clean=False, user=user, password=user.encode(), properties=lasting)
        wait_for(lambda: server.status()["sessions_connected"] == 0)
        server.pass_time(200)
        wait_for(lambda: server.status()["sessions"] == 1)
        assert not enter(server.address, "alice")[1].session_present
        assert enter(server.address, "bob")[1].session_present


def anonymous_session(address: tuple[str, int]) -> None:
    client, _ = enter(address, None)
    client.subscribe("a", Request("$queue/q/work", 2))
    client.publish("a", b"1")
    assert [one.payload for one in client.receive(1, acknowledge=False)] == [b"1"]
    client.send(Publish("work", b"2", 2, packet_id=9))
    assert {type(client.next_packet()), type(client.next_packet())} == {Pubrec, Publish}


@pytest.mark.crash
@ENDS
def test_session_without_a_user_goes_to_the_first_user_with_its_client_id_when_logins_are_required(
    tmp_path: Path, users: dict[str, Any], end: signal.Signals
) -> None:
    with MqttProcess(tmp_path / "data") as server:
        anonymous_session(server.address)
        server.end(end)
    with MqttProcess(tmp_path / "data", **users) as server:
        alice, answer = enter(server.address, "alice")
        assert answer.session_present
        assert sorted(one.payload for one in alice.receive(2, acknowledge=False)) == [b"1", b"2"]
        alice.send(Publish("work", b"2", 2, duplicate=True, packet_id=9))
        assert alice.expect(Pubrec).packet_id == 9
        alice.expect_silence()
        _bob, answer = enter(server.address, "bob")
        assert not answer.session_present
        server.end(end)
    with MqttProcess(tmp_path / "data", **users) as server:
        for user in ("alice", "bob"):
            assert enter(server.address, user)[1].session_present


def test_session_without_a_user_is_kept_when_anonymous_clients_are_allowed(
    tmp_path: Path, users: dict[str, Any]
) -> None:
    with mqtt_server(tmp_path / "data", **users, allow_anonymous=True) as server:
        nobody, _ = enter(server.address, None)
        nobody.subscribe("a")
        nobody.close()
        for clean in (True, False):
            alice, answer = enter(server.address, "alice", clean=clean)
            assert answer.session_present is not clean
            alice.close()
        assert enter(server.address, None)[1].session_present


@pytest.mark.parametrize(
    ("client_id", "reason"), [("x" * 65_529, 0), ("x" * 65_530, 0x85)], ids=["fits", "too long"]
)
def test_a_client_is_refused_when_its_id_and_user_are_too_long_together(
    tmp_path: Path, users: dict[str, Any], client_id: str, reason: int, level: int
) -> None:
    with (
        mqtt_server(tmp_path / "data", **users) as server,
        RawClient(server.address, level) as client,
    ):
        client.send(Connect(client_id, level, True, 0, Will("t", b""), "alice", b"alice"))
        expected = 2 if reason and level == 4 else reason
        assert client.expect(Connack).reason == expected
