"""Owners and their parts of a limit: one of them leaves something of each limit to the others, whatever it does."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

import timestone
from mqtt_front.codec.packets import Puback, Publish, Will
from mqtt_front.codec.properties import Properties
from mqtt_front.ingest.topic_use import SPACE
from mqtt_front.runtime.shares import Shares, Tally
from mqtt_front.security.password_file import set_password
from mqtt_front.sessions.session import session_key
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_process import MqttProcess
from tests.support.mqtt_server import mqtt_server
from tests.support.step_clock import StepClock
from tests.support.waiting import wait_for

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
    """A client that is let in: `user` is its user, or its client id where there are no logins."""
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
def test_an_owner_is_the_user_and_without_logins_the_client_id(
    users: bool, client_id: str, user: str | None, owner: str
) -> None:
    assert Shares(users=users).owner(session_key(client_id, user)) == owner


@pytest.mark.parametrize(
    ("percent", "limit", "part"), [(50, 10, 5), (50, 1, 1), (30, 10, 3), (100, 7, 7), (1, 5, 1)]
)
def test_a_part_is_the_percentage_and_at_least_one(percent: int, limit: int, part: int) -> None:
    assert Shares(percent).of(limit) == part


def test_a_tally_forgets_an_owner_when_nothing_is_left() -> None:
    tally = Tally()
    for owner, amount in (("a", 2), ("b", 3), ("a", -2), ("c", 1)):
        tally.add(owner, amount)
    assert (tally.total, tally.of("a"), tally.of("b"), tally.of("c")) == (4, 0, 3, 1)
    assert len(tally._of) == 2


@pytest.mark.crash
@LOGINS
@ENDS
def test_shared_subscriptions_are_left_to_others_when_one_makes_as_many_as_it_can(
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


def test_a_queue_ends_when_no_session_wants_it_any_more(tmp_path: Path) -> None:
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
def test_topics_are_left_to_others_when_one_client_makes_as_many_as_it_can(
    tmp_path: Path, logins: bool, end: signal.Signals
) -> None:
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


def topics_known(store: Path) -> int:
    """How many topics are counted for the greedy client on the disk."""
    with timestone.view(store) as view:
        documents = view.documents(SPACE)
        found = [document for owner, document in documents.items() if owner.strip("\0") == "greedy"]
        return sum(json.loads(one)["logs"]["mqtt"][1] for one in found)


def test_topics_of_wills_are_counted_when_clients_leave_without_a_word(tmp_path: Path) -> None:
    with mqtt_server(tmp_path, client_topic_count=2) as server:
        for number in range(4):
            enter(server.address, "greedy", False, will=Will(f"gone/{number}", b"x")).close()
        wait_for(lambda: server.status()["over_client_topic_count"] >= 2)
        enter(server.address, "modest", False, will=Will("gone/modest", b"x")).close()
        log = server.store.log("mqtt")
        wait_for(lambda: log.end_offset == 3)
        assert log.topics.names() == ["gone/0", "gone/1", "gone/modest"]
