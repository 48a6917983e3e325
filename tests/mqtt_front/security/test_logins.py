"""Accepted clients, their rights, and the log lines about them: real clients against a running front."""

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqtt_front.codec import packets
from mqtt_front.codec.packets import Connack, Connect, Disconnect, Puback, Publish, Will
from mqtt_front.settings import MqttSettings
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import MqttServer, mqtt_server
from tests.support.paho_client import PahoClient
from tests.support.signing_keys import jwk, token, write_key_set
from tests.support.waiting import TIMEOUT_S, wait_for
from timestone_access.identity import Credentials, Identity, Refusal
from timestone_access.passwords.password_authenticator import PasswordAuthenticator
from timestone_access.passwords.password_file import set_password
from timestone_access.settings import JwtSettings, LockoutSettings

ACL = """\
topic read public/#
user alice
topic readwrite alice/#
topic read shared/#
topic deny shared/secret
user backend
topic readwrite #
pattern readwrite devices/%c/#
pattern read users/%u/#
"""
ALICE, BACKEND, DEVICE = ("alice", "wonderland-1"), ("backend", "machinery-2"), ("device", "sensor-3")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("security")
    for user, password in (ALICE, BACKEND, DEVICE):
        set_password(path / "passwords", user, password.encode())
    (path / "acl").write_text(ACL)
    write_key_set(path / "jwks", jwk("ES256", kid="k"))
    return path


@pytest.fixture(scope="module")
def guarded(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqttServer]:
    with mqtt_server(
        tmp_path_factory.mktemp("mqtt"),
        password_file=files / "passwords",
        acl_file=files / "acl",
        jwt=JwtSettings(jwks=files / "jwks"),
        lockout=LockoutSettings(failures=3),
        client_requests_per_s=0,  # one of the tests pings for as long as logins take
    ) as server:
        yield server


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def login(
    client: RawClient, client_id: str, user: str | None, password: bytes | None, **more: object
) -> Connack:
    client.send(Connect(client_id, client.level, True, 0, None, user, password, **more))  # type: ignore[arg-type]
    return client.expect(Connack)


@pytest.mark.parametrize("level", [3, 4, 5])
def test_login_is_accepted_only_with_the_right_password(guarded: MqttServer, level: int) -> None:
    with PahoClient("right", level=level) as client:
        assert client.connect(guarded.address, *ALICE) == 0
    refusals = {
        "wrong": ("alice", b"wrong", (4, 0x86)),
        "unknown": ("mallory", b"x", (4, 0x86)),
        "anonymous": (None, None, (5, 0x87)),
    }
    for user, password, (old, new) in refusals.values():
        with RawClient(guarded.address, level) as client:
            assert login(client, "c", user, password).reason == (new if level == 5 else old)
            client.expect_closed()


def test_packets_behind_connect_wait_for_the_login(guarded: MqttServer) -> None:
    with RawClient(guarded.address) as client:
        client.send(
            Connect("early", 4, True, 0, None, ALICE[0], ALICE[1].encode()),
            packets.Subscribe(1, (packets.Request("alice/early", 1),)),
            *[Publish("alice/early", b"%d" % number, 1, packet_id=number) for number in range(1, 200)],
        )
        assert client.expect(Connack).reason == 0
        client.expect(packets.Suback)
        got = [client.next_packet() for _ in range(2 * 199)]
        assert [one.packet_id for one in got if isinstance(one, Puback)] == list(range(1, 200))
        assert [one.payload for one in got if isinstance(one, Publish)] == [b"%d" % n for n in range(1, 200)]


def test_packets_behind_a_refused_connect_are_ignored(guarded: MqttServer) -> None:
    received = guarded.status()["publishes_received"]
    with RawClient(guarded.address) as client:
        client.send(
            Connect("early", 4, True, 0, None, "alice", b"guess"), Publish("alice/x", b"x", 1, packet_id=1)
        )
        assert client.expect(Connack).reason == 4
        client.expect_closed()
    assert guarded.status()["publishes_received"] == received


def test_client_that_disconnects_during_its_password_check_is_removed(guarded: MqttServer) -> None:
    for _ in range(5):
        with RawClient(guarded.address) as client:
            client.send(Connect("leaver", 4, True, 0, None, "nobody-knows-me", b"x"))
    wait_for(lambda: guarded.status()["connections"] == 0)


def test_password_checks_do_not_delay_other_clients(
    guarded: MqttServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight logins whose check takes until a client that is inside has pinged again and again."""
    checking, finish = threading.Semaphore(0), threading.Event()
    authenticate = PasswordAuthenticator.authenticate

    def held_up(self: PasswordAuthenticator, credentials: Credentials) -> Identity | Refusal | None:
        checking.release()
        assert finish.wait(TIMEOUT_S)
        return authenticate(self, credentials)

    with guarded.standing_still(), RawClient(guarded.address) as inside:
        assert login(inside, "inside", *BACKEND[:1], BACKEND[1].encode()).reason == 0

        def guess(number: int) -> None:
            with RawClient(guarded.address) as client:
                login(client, f"guess-{number}", f"guesser-{number}", b"x")

        monkeypatch.setattr(PasswordAuthenticator, "authenticate", held_up)
        threads = [threading.Thread(target=guess, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        try:
            assert checking.acquire(timeout=TIMEOUT_S)
            for _ in range(30):
                inside.expect_silence()
            assert all(thread.is_alive() for thread in threads), "none of them is decided"
        finally:
            finish.set()
            for thread in threads:
                thread.join(TIMEOUT_S)
        assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("tell", [True, False])
def test_forbidden_subscription_is_answered_as_configured(tmp_path: Path, tell: bool) -> None:
    """The file is the one of the Paho project's suite on the conformance page."""
    (tmp_path / "acl").write_text("topic readwrite #\ntopic deny test/nosubscribe\n")
    with mqtt_server(tmp_path / "data", acl_file=tmp_path / "acl", tell_not_authorized=tell) as server:
        for level, refused in ((4, 0x80), (5, 0x87 if tell else 0x80)):
            with RawClient(server.address, level) as client:
                client.connect("paho")
                assert client.subscribe("test/nosubscribe", "test/#") == (refused, 1)


@pytest.mark.parametrize("level", [4, 5])
def test_rules_apply_to_publishes_and_deliveries_of_each_user(guarded: MqttServer, level: int) -> None:
    with RawClient(guarded.address, level) as alice, RawClient(guarded.address, level) as backend:
        login(alice, "a", ALICE[0], ALICE[1].encode())
        login(backend, "b", BACKEND[0], BACKEND[1].encode())
        refused = 0x87 if level == 5 else 0x80
        assert alice.subscribe("#") == (1,)
        assert alice.subscribe("backend/#") == (refused,)
        assert alice.subscribe("shared/secret") == (refused,)
        assert alice.subscribe("public/#") == (refused,), "that is for clients without a user"
        for number, topic in enumerate(
            [
                "backend/1",
                "shared/secret",
                "alice/1",
                "public/1",
                "devices/a/1",
                "devices/b/1",
                "users/alice/x",
                "shared/1",
            ],
            1,
        ):
            backend.publish(topic, topic.encode(), packet_id=number)
        got = [one.topic for one in alice.receive(4)]
        assert got == ["alice/1", "devices/a/1", "users/alice/x", "shared/1"]
        alice.expect_silence()


def test_forbidden_publish_is_refused_or_dropped_and_never_stored(
    guarded: MqttServer, caplog: pytest.LogCaptureFixture
) -> None:
    before = guarded.status()["publishes_forbidden"]
    with RawClient(guarded.address, 5) as new, RawClient(guarded.address, 4) as old:
        login(new, "n", ALICE[0], ALICE[1].encode())
        login(old, "o", ALICE[0], ALICE[1].encode())
        for client in (new, old):
            client.send(
                Publish("alice/ok", b"1", 1, packet_id=1),
                Publish("forbidden/1", b"2", 1, packet_id=2),
                Publish("forbidden/0", b"3"),
                Publish("alice/ok", b"4", 1, packet_id=4),
            )
        answers = [new.expect(Puback) for _ in range(3)]
        assert [(one.packet_id, one.reason) for one in answers] == [(1, 0), (2, 0x87), (4, 0)]
        assert [old.expect(Puback).packet_id for _ in range(3)] == [1, 2, 4]
        new.expect_silence()
        old.expect_silence()
    stored = {record.topic for record in guarded.store.log("mqtt").reader("earliest")}
    assert "alice/ok" in stored and not any((topic or "").startswith("forbidden") for topic in stored)
    assert guarded.store.log("mqtt").topics.find("forbidden/1") is None, "refused topics fill no dictionary"
    assert guarded.status()["publishes_forbidden"] == before + 4
    for client_id in ("n", "o"):
        assert f"publish of client '{client_id}' at " in caplog.text


@pytest.mark.parametrize("level", [4, 5])
def test_forbidden_publish_at_qos_2_frees_its_packet_id(guarded: MqttServer, level: int) -> None:
    before = guarded.status()["publishes_forbidden"]
    with RawClient(guarded.address, level) as client:
        login(client, f"twice-{level}", ALICE[0], ALICE[1].encode())
        client.send(
            Publish("forbidden/2", b"1", 2, packet_id=7),
            Publish("forbidden/2", b"2", 2, packet_id=8),
            Publish("alice/2", b"3", 2, packet_id=9),
        )
        answers = [client.expect(packets.Pubrec) for _ in range(3)]
        refused = 0x87 if level == 5 else 0
        assert [(one.packet_id, one.reason) for one in answers] == [(7, refused), (8, refused), (9, 0)]
        open_ids = [9] if level == 5 else [7, 8, 9]
        client.send(*[packets.Pubrel(packet_id) for packet_id in open_ids])
        assert [client.expect(packets.Pubcomp).packet_id for _ in open_ids] == open_ids
        client.send(Publish("alice/2", b"again", 2, packet_id=7))
        assert client.expect(packets.Pubrec).reason == 0
    assert guarded.status()["publishes_forbidden"] == before + 2
    found = [record for record in guarded.store.log("mqtt").reader("earliest") if record.topic == "alice/2"]
    assert [record.payload for record in found[-2:]] == [b"3", b"again"]


def test_forbidden_will_is_not_published(guarded: MqttServer, caplog: pytest.LogCaptureFixture) -> None:
    for topic in ("forbidden/will", "alice/will"):
        client = RawClient(guarded.address)
        client.send(
            Connect(f"will-{topic[:5]}", 4, True, 0, Will(topic, b"bye"), ALICE[0], ALICE[1].encode())
        )
        assert client.expect(Connack).reason == 0
        client.close()
    wait_for(lambda: guarded.store.log("mqtt").topics.find("alice/will") is not None)
    assert guarded.store.log("mqtt").topics.find("forbidden/will") is None
    assert "has a will to 'forbidden/will', where it may not publish: left out" in caplog.text


@pytest.mark.parametrize("level", [4, 5])
def test_token_is_accepted_as_a_password(guarded: MqttServer, level: int) -> None:
    with RawClient(guarded.address, level) as client:
        acl = {"pub": ["t/%c/#"], "sub": ["t/#"]}
        assert login(client, "t1", "unused", token("ES256", sub="alice", acl=acl)).reason == 0
        assert client.subscribe("t/#", "alice/#") == (1, 0x87 if level == 5 else 0x80)
        client.publish("t/t1/x", b"mine")
        assert client.receive(1)[0].payload == b"mine"
    with RawClient(guarded.address, level) as client:
        assert login(client, "t2", "unused", token("ES256", exp=1_000_000)).reason == (
            0x86 if level == 5 else 4
        )


def test_token_without_a_user_name_is_accepted_in_mqtt_5(guarded: MqttServer) -> None:
    with RawClient(guarded.address, 5) as client:
        assert login(client, "t3", None, token("ES256")).reason == 0


def test_connection_ends_when_its_token_expires(files: Path, tmp_path: Path) -> None:
    settings = JwtSettings(jwks=files / "jwks", leeway_ms=0)
    with (
        mqtt_server(tmp_path, jwt=settings) as server,
        server.standing_still(),
        RawClient(server.address, 5) as client,
    ):
        assert login(client, "short", None, token("ES256", exp=int(time.time()) + 3600)).reason == 0
        server.pass_time(1800)
        client.expect_silence()
        server.pass_time(1810)
        assert client.expect(Disconnect).reason == 0x87
        client.expect_closed()


@pytest.mark.parametrize("level", [4, 5])
def test_client_that_guesses_passwords_is_locked_out(files: Path, tmp_path: Path, level: int) -> None:
    with mqtt_server(
        tmp_path, password_file=files / "passwords", lockout=LockoutSettings(failures=3, lock_ms=60_000)
    ) as server:
        clock = Clock()
        broker = server.front._broker
        assert broker is not None
        broker.guard._admission._lockout._clock = clock
        reasons = []
        for guess in (b"1", b"2", b"3", ALICE[1].encode()):
            with RawClient(server.address, level) as client:
                reasons.append(login(client, "g", "alice", guess).reason)
        assert reasons == ([0x86] * 3 + [0x8A] if level == 5 else [4] * 3 + [5])
        with RawClient(server.address, level) as other:
            assert login(other, "o", BACKEND[0], BACKEND[1].encode()).reason == 0
        assert server.status()["logins_locked_out"] == 1

        for now, let_in in ((59.0, False), (61.0, True)):
            clock.now = now
            with RawClient(server.address, level) as client:
                assert (login(client, "g", "alice", ALICE[1].encode()).reason == 0) is let_in


needs_mosquitto = pytest.mark.skipif(
    shutil.which("mosquitto_passwd") is None or shutil.which("mosquitto_pub") is None,
    reason="mosquitto's tools are not installed (Debian: apt-get install mosquitto mosquitto-clients)",
)


@needs_mosquitto
def test_mosquitto_files_and_clients_work_unchanged(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("user alice\ntopic readwrite home/#\nuser bob\ntopic read home/+/temp\n")
    for number, (user, kind) in enumerate({"alice": "sha512-pbkdf2", "bob": "sha512"}.items()):
        create = ["-c"] if number == 0 else []
        subprocess.run(
            ["mosquitto_passwd", "-H", kind, *create, "-b", tmp_path / "passwords", user, f"of-{user}"],
            check=True,
        )
    with mqtt_server(
        tmp_path / "store", password_file=tmp_path / "passwords", acl_file=tmp_path / "acl"
    ) as server:
        host, port = server.address
        where = ["-h", host, "-p", str(port)]
        as_bob = [*where, "-u", "bob", "-P", "of-bob", "-i", "bob"]
        as_alice = [*where, "-u", "alice", "-P", "of-alice"]
        with subprocess.Popen(
            ["mosquitto_sub", *as_bob, "-t", "#", "-q", "1", "-v", "-C", "2", "-W", "90"],
            stdout=subprocess.PIPE,
            text=True,
        ) as bob:
            wait_for(lambda: server.subscription_count == 1)
            for topic in ("home/kitchen/temp", "home/kitchen/light", "home/cellar/temp"):
                subprocess.run(
                    ["mosquitto_pub", *as_alice, "-t", topic, "-q", "1", "-m", topic],
                    check=True,
                    timeout=TIMEOUT_S,
                )
            said, _ = bob.communicate(timeout=TIMEOUT_S)
        assert said.splitlines() == [
            f"{topic} {topic}" for topic in ("home/kitchen/temp", "home/cellar/temp")
        ]
        wrong = subprocess.run(
            ["mosquitto_pub", *where, "-u", "alice", "-P", "guess", "-t", "home/x", "-m", "x"],
            capture_output=True, text=True, timeout=TIMEOUT_S,
        )  # fmt: skip
        assert wrong.returncode != 0
        assert "bad user name or password" in (wrong.stdout + wrong.stderr).lower()


@pytest.mark.parametrize("level", [4, 5])
def test_device_topics_restrict_devices_and_not_backends(tmp_path: Path, level: int) -> None:
    set_password(tmp_path / "passwords", "backend", b"b")
    set_password(tmp_path / "passwords", "fleet", b"f")
    settings = {
        "password_file": tmp_path / "passwords",
        "device_topics": "devices/%c/#",
        "backend_users": ("backend",),
    }
    with (
        mqtt_server(tmp_path / "store", **settings) as server,  # type: ignore[arg-type]
        RawClient(server.address, level) as device,
        RawClient(server.address, level) as other,
        RawClient(server.address, level) as backend,
    ):
        assert login(device, "d1", "fleet", b"f").reason == 0
        assert login(other, "d2", "fleet", b"f").reason == 0
        assert login(backend, "any", "backend", b"b").reason == 0
        assert backend.subscribe("devices/+/temp") == (1,)
        refused = 0x87 if level == 5 else 0x80
        assert device.subscribe("devices/d1/#", "devices/+/orders", "#", "devices/d2/#") == (1, 1, 1, refused)
        device.publish("devices/d1/temp", b"own")
        assert device.receive(1)[0].payload == b"own"
        other.send(Publish("devices/d1/temp", b"forged", 1, packet_id=1))
        assert other.expect(Puback).reason == (0x87 if level == 5 else 0)
        backend.publish("devices/d2/orders", b"for d2", packet_id=1)
        backend.publish("devices/d1/orders", b"for d1", packet_id=2)
        assert [one.payload for one in device.receive(1)] == [b"for d1"]
        assert [one.payload for one in backend.receive(1)] == [b"own"]
        backend.expect_silence()


def test_device_topics_without_a_placeholder_are_refused() -> None:
    with pytest.raises(ValueError, match="expected a level %c or %u"):
        MqttSettings(device_topics="devices/#")
