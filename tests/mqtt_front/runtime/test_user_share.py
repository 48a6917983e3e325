"""Owners and their shares of a limit: no owner can use up a limit that others need."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

import timestone
from mqtt_front.codec.packets import Disconnect, Puback, Publish, Unsuback, Unsubscribe, Will
from mqtt_front.codec.properties import Properties
from mqtt_front.ingest.topic_use import SPACE
from mqtt_front.runtime.user_share import Shares, Tally
from mqtt_front.sessions.session import session_key
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_process import MqttProcess
from tests.support.mqtt_server import mqtt_server
from tests.support.step_clock import StepClock
from tests.support.waiting import wait_for
from timestone.record import HEADER_BLOCK_BYTES_MAX
from timestone_access.passwords.password_file import set_password

ENDS = pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
LOGINS = pytest.mark.parametrize("logins", [True, False], ids=["users", "client ids"])


def settings(path: Path, logins: bool, **more: Any) -> dict[str, Any]:
    """Settings of a server, with the users greedy and modest if clients have to log in."""
    if not logins:
        return more
    for user in ("greedy", "modest"):
        set_password(path / "passwords", user, user.encode())
    return more | {"password_file": path / "passwords"}


def enter(
    address: tuple[str, int],
    user: str,
    logins: bool,
    *,
    client_id: str | None = None,
    level: int = 5,
    **more: Any,
) -> RawClient:
    """Connect a client: `user` is its user, or its client id where there are no logins."""
    client = RawClient(address, level)
    login: dict[str, Any] = {"user": user, "password": user.encode()} if logins else {}
    assert client.connect(client_id or user, **login, **more).reason == 0
    return client


@pytest.mark.parametrize(
    ("users", "client_id", "user", "owner"),
    [
        (True, "c", "alice", "\0alice"),
        (True, "c", "", "\0"),
        (True, "c", None, ""),
        (False, "c", None, "c"),
        (False, "c", "alice", "\0alice"),  # by a client certificate
    ],
)
def test_owner_is_the_user_or_without_logins_the_client_id(
    users: bool, client_id: str, user: str | None, owner: str
) -> None:
    assert Shares(users=users).owner(session_key(client_id, user)) == owner


@pytest.mark.parametrize(
    ("percent", "limit", "part"), [(50, 10, 5), (50, 1, 1), (30, 10, 3), (100, 7, 7), (1, 5, 1)]
)
def test_part_is_the_percentage_and_at_least_one(percent: int, limit: int, part: int) -> None:
    assert Shares(percent).of(limit) == part


def test_tally_removes_an_owner_when_its_count_is_0() -> None:
    tally = Tally()
    for owner, amount in (("a", 2), ("b", 3), ("a", -2), ("c", 1)):
        tally.add(owner, amount)
    assert (tally.total, tally.of("a"), tally.of("b"), tally.of("c")) == (4, 0, 3, 1)
    assert len(tally._of) == 2


@pytest.mark.crash
@LOGINS
@ENDS
def test_one_client_cannot_use_up_all_shared_subscriptions(
    tmp_path: Path, logins: bool, end: signal.Signals
) -> None:
    """Queues outlive their members, so each start of the server finds them all."""
    limits = settings(tmp_path, logins, shared_count=6)
    made = 0
    for run in range(3):
        with MqttProcess(tmp_path / "data", **limits) as server:
            for attempt in range(3):
                client_id = f"greedy-{run}-{attempt}" if logins else None
                with enter(server.address, "greedy", logins, client_id=client_id) as greedy:
                    names = [f"$queue/{run}-{attempt}-{number}/x" for number in range(3)]
                    reasons = greedy.subscribe(*names)
                    made += reasons.count(1)
                    assert set(reasons) <= {1, 0x97}
            server.end(end)
    assert made == 3
    with (
        MqttProcess(tmp_path / "data", **limits) as server,
        enter(server.address, "modest", logins) as modest,
    ):
        assert modest.subscribe("$queue/q/x", "$share/g/x") == (1, 1)


def test_queue_ends_after_its_last_session_unsubscribed(tmp_path: Path) -> None:
    clock = StepClock()
    limits: dict[str, Any] = {"shared_count": 2, "queue_expiry_s": 100}
    with timestone.open(tmp_path, clock=clock) as store:
        with mqtt_server(tmp_path, store=store, clock=clock, **limits) as server, server.standing_still():
            lasting = Properties(session_expiry_interval=0xFFFFFFFF)
            with enter(server.address, "a", False, clean=False, properties=lasting) as client:
                assert client.subscribe("$queue/kept/x") == (1,)
            with enter(server.address, "b", False) as client:
                assert client.subscribe("$queue/left/x") == (1,)
            wait_for(lambda: server.status()["sessions_connected"] == 0)
            server.pass_time(60)
        with mqtt_server(tmp_path, store=store, clock=clock, **limits) as server, server.standing_still():
            server.pass_time(30)
            assert server.status()["shared_subscriptions"] == 2
            server.pass_time(20)
            assert server.status()["shared_subscriptions"] == 1
            with enter(server.address, "b", False) as client:
                assert client.subscribe("$queue/new/x") == (1,)
        with mqtt_server(tmp_path, store=store, clock=clock) as server:
            assert server.status()["shared_subscriptions"] == 2


def fill(client: RawClient, first: int, count: int) -> set[int]:
    """Publish to so many new topics at QoS 1; returns the reasons of the answers."""
    for number in range(first, first + count):
        client.send(Publish(f"new/{number}", b"", 1, packet_id=1 + number - first))
    return {client.expect(Puback).reason for _ in range(count)}


@pytest.mark.crash
@LOGINS
@ENDS
def test_one_client_cannot_use_up_all_topics(tmp_path: Path, logins: bool, end: signal.Signals) -> None:
    with timestone.open(tmp_path / "data") as store:
        store.log("mqtt", config=timestone.LogConfig(topic_count=1000))
    limits = settings(tmp_path, logins, session_save_ms=10)
    for run in range(2):
        with MqttProcess(tmp_path / "data", **limits) as server:
            for attempt in range(2):
                client_id = f"greedy-{run}-{attempt}" if logins else None
                with enter(server.address, "greedy", logins, client_id=client_id) as greedy:
                    reasons = fill(greedy, 400 * (2 * run + attempt), 400)
                    assert reasons == {(0, 0): {0}, (0, 1): {0, 0x97}}.get((run, attempt), {0x97})
            with enter(server.address, "modest", logins) as modest:
                assert fill(modest, 5000 + 50 * run, 50) == {0}
            wait_for(lambda: topics_known(tmp_path / "data") == 500)
            server.end(end)


@LOGINS
@pytest.mark.parametrize("level", [4, 5])
def test_topics_are_counted_on_when_a_client_connects_again(tmp_path: Path, logins: bool, level: int) -> None:
    limits = settings(tmp_path, logins, client_topic_count=3)
    with mqtt_server(tmp_path / "data", **limits) as server:
        for number in range(5):
            with enter(server.address, "greedy", logins, level=level) as greedy:
                greedy.send(Publish(f"new/{number}", b"", 1, packet_id=1))
                if number < 3:
                    assert greedy.expect(Puback).reason == 0
                elif level == 5:
                    assert greedy.expect(Puback).reason == 0x97
                else:
                    greedy.expect_closed()
        with enter(server.address, "modest", logins, level=level) as modest:
            modest.publish("new/modest")
        assert server.status()["over_client_topic_count"] == 2


def topics_known(store: Path) -> int:
    """How many topics are counted for the greedy client on the disk."""
    with timestone.view(store) as view:
        documents = view.documents(SPACE)
        found = [document for owner, document in documents.items() if owner.strip("\0") == "greedy"]
        return sum(json.loads(one)["logs"]["mqtt"][1] for one in found)


def test_topics_of_published_wills_are_counted(tmp_path: Path) -> None:
    with mqtt_server(tmp_path, client_topic_count=2) as server:
        for number in range(4):
            enter(server.address, "greedy", False, will=Will(f"gone/{number}", b"x")).close()
        wait_for(lambda: server.status()["over_client_topic_count"] >= 2)
        enter(server.address, "modest", False, will=Will("gone/modest", b"x")).close()
        log = server.store.log("mqtt")
        wait_for(lambda: log.end_offset == 3)
        assert log.topics.names() == ["gone/0", "gone/1", "gone/modest"]


FOREVER = Properties(session_expiry_interval=0xFFFFFFFF)
OVER_SHARE = "over_user_share_percent"


def login(user: str, logins: bool) -> dict[str, Any]:
    return {"user": user, "password": user.encode()} if logins else {}


def refused(address: tuple[str, int], client_id: str, level: int, **more: Any) -> bool:
    """Does a client of the user greedy get 0x97 (MQTT 3: 3) for its CONNECT, and nothing more?"""
    with RawClient(address, level) as client:
        answer = client.connect(client_id, **login("greedy", True), **more)
        if answer.reason == 0:
            return False
        assert answer.reason == (0x97 if level == 5 else 3)
        if level == 5:
            assert "user_share_percent is 50 of" in (answer.properties.reason_string or "")
        client.expect_closed()
        return True


def test_connections_are_left_to_others_when_one_user_opens_as_many_as_it_can(tmp_path: Path) -> None:
    with mqtt_server(tmp_path, **settings(tmp_path, True, connection_count=6)) as server:
        greedy = [enter(server.address, "greedy", True, client_id=f"g{number}") for number in range(3)]
        for level in (4, 5):
            assert refused(server.address, "new", level)
        again = enter(server.address, "greedy", True, client_id="g0")  # takes the place of the first
        modest = enter(server.address, "modest", True)
        greedy.pop().close()
        wait_for(lambda: server.status()["sessions_connected"] == 3)
        enter(server.address, "greedy", True, client_id="new").close()
        assert server.status()[OVER_SHARE] == 2
        for client in (*greedy, again, modest):
            client.close()


@pytest.mark.crash
@ENDS
def test_sessions_are_left_to_others_when_one_user_begins_as_many_as_it_can(
    tmp_path: Path, end: signal.Signals
) -> None:
    limits = settings(tmp_path, True, session_count=6)
    for run in range(2):
        with MqttProcess(tmp_path / "data", **limits) as server:
            for number in range(3):
                enter(
                    server.address, "greedy", True, client_id=f"g{number}", clean=False, properties=FOREVER
                ).close()
            for level in (4, 5):
                assert refused(server.address, "new", level, clean=False, properties=FOREVER)
            enter(server.address, "greedy", True, client_id="passing").close()
            enter(
                server.address, "modest", True, client_id=f"m{run}", clean=False, properties=FOREVER
            ).close()
            server.end(end)
    with MqttProcess(tmp_path / "data", **limits) as server:
        enter(server.address, "greedy", True, client_id="g0").close()  # a clean start ends the session
        enter(server.address, "greedy", True, client_id="new", clean=False, properties=FOREVER).close()


@pytest.mark.crash
@ENDS
def test_bytes_of_sessions_are_left_to_others_when_one_user_subscribes_to_as_much_as_it_can(
    tmp_path: Path, end: signal.Signals
) -> None:
    limits = settings(tmp_path, True, session_bytes=40_000)
    taken: list[int] = []
    for run in range(2):
        with MqttProcess(tmp_path / "data", **limits) as server:
            for number in range(3):
                with RawClient(server.address, 5) as greedy:
                    who = login("greedy", True)
                    if greedy.connect(f"g{number}", clean=False, properties=FOREVER, **who).reason:
                        continue
                    names = [f"{run}/{number}/{one}/" + "x" * 1000 for one in range(20)]
                    reasons = greedy.subscribe(*names)
                    assert set(reasons) <= {1, 0x97}
                    taken += reasons
            with enter(server.address, "modest", True, clean=False, properties=FOREVER) as modest:
                assert modest.subscribe(*["x" * 1000 + str(one) for one in range(10)]) == (1,) * 10
            server.end(end)
    assert 10 <= taken.count(1) <= 20
    with MqttProcess(tmp_path / "data", **limits) as server, RawClient(server.address, 5) as greedy:
        who = login("greedy", True)
        assert greedy.connect("g0", clean=False, properties=FOREVER, **who).session_present
        greedy.send(Unsubscribe(1, tuple(f"0/0/{one}/" + "x" * 1000 for one in range(20))))
        greedy.expect(Unsuback)
        assert greedy.subscribe("y" * 1000) == (1,), "what it gave back it can have"


@pytest.mark.crash
@ENDS
def test_bytes_of_wills_are_left_to_others_when_one_user_leaves_as_many_as_it_can(
    tmp_path: Path, end: signal.Signals
) -> None:
    limits = settings(tmp_path, True, will_bytes=4000)
    delayed = Will("gone", bytes(900), properties=Properties(will_delay_interval=10_000))
    for run in range(2):
        with MqttProcess(tmp_path / "data", **limits) as server:
            for number in range(2):
                for _ in range(2):  # the second time it takes the place of the first
                    enter(
                        server.address, "greedy", True, client_id=f"g{number}", clean=False, properties=FOREVER,
                        will=delayed,
                    ).close()  # fmt: skip
            for level in (4, 5):
                assert refused(server.address, "more", level, will=Will("gone", bytes(900)))
            enter(server.address, "greedy", True, client_id="none").close()
            with enter(
                server.address, "modest", True, client_id=f"m{run}", will=Will("gone", bytes(900))
            ) as modest:
                modest.send(Disconnect())
                modest.expect_closed()
            server.end(end)


@pytest.mark.crash
@LOGINS
@ENDS
@pytest.mark.parametrize("level", [4, 5])
def test_retained_messages_are_left_to_others_when_one_client_publishes_as_many_as_it_can(
    tmp_path: Path, logins: bool, end: signal.Signals, level: int
) -> None:
    limits = settings(tmp_path, logins, retained_count=10, retained_bytes=20_000)

    def retain(client: RawClient, topic: str, payload: bytes = b"x") -> int | None:
        """The reason of PUBACK; None when the connection ends."""
        client.send(Publish(topic, payload, 1, retain=True, packet_id=1))
        answer = client.next_packet()
        assert answer is None or isinstance(answer, Puback)
        return None if answer is None else answer.reason

    def greedy(address: tuple[str, int], topic: str, payload: bytes = b"x") -> bool:
        """Is a message of the greedy client retained?"""
        with enter(address, "greedy", logins, client_id="greedy", level=level) as client:
            reason = retain(client, topic, payload)
            assert reason in (0, 0x97 if level == 5 else None)
            return reason == 0

    for run in range(3):
        with MqttProcess(tmp_path / "data", **limits) as server:
            kept = [greedy(server.address, f"g/{number}") for number in range(7)]
            assert kept == [True] * 5 + [False] * 2
            assert not greedy(server.address, "g/0", bytes(10_001))
            with enter(server.address, "modest", logins, level=level) as modest:
                assert [retain(modest, f"m/{number}") for number in range(run + 1)] == [0] * (run + 1)
            server.end(end)
    with MqttProcess(tmp_path / "data", **limits) as server:
        assert greedy(server.address, "g/0", b"")
        assert greedy(server.address, "g/new")
        assert not greedy(server.address, "g/newer")
        with enter(server.address, "modest", logins, level=level) as modest:
            assert retain(modest, "g/new") == 0, "it counts for its last publisher"
        assert greedy(server.address, "g/newer")


def test_wills_are_retained_within_the_share_of_their_client(tmp_path: Path) -> None:
    with mqtt_server(tmp_path, retained_count=6) as server:
        log = server.store.log("mqtt")

        def leave(user: str, topic: str, **properties: Any) -> None:
            published = log.end_offset + 1
            will = Will(topic, b"x", 1, retain=True, properties=Properties(**properties))
            enter(server.address, user, False, will=will).close()
            wait_for(lambda: log.end_offset == published)

        for number in range(5):
            leave("greedy", f"gone/{number}")
        wait_for(lambda: server.status()["retained"] == 3)
        # Its properties leave no room for what says whose it is.
        leave("modest", "gone/nameless", user_properties=(("x", "x" * (HEADER_BLOCK_BYTES_MAX - 8)),))
        leave("modest", "gone/modest")
        wait_for(lambda: server.status()["retained"] == 4)
        with RawClient(server.address) as client:
            client.connect("reader")
            client.subscribe("gone/#")
            topics = [one.topic for one in client.receive(4)]
        assert topics == ["gone/0", "gone/1", "gone/2", "gone/modest"]
