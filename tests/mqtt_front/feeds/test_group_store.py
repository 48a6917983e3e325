"""Shared groups across restarts: their members, their offsets, and which groups are kept."""

import json
import logging

import pytest

from mqtt_front.feeds.group_store import KEY_PREFIX, NEVER_S, Groups
from mqtt_front.runtime.clocks import PassingTime
from tests.support.damaged_json import DAMAGED_JSON
from tests.support.step_clock import StepClock
from timestone.log import Log
from timestone.store import Store

LOG = logging.getLogger("test")


@pytest.fixture
def log(store: Store) -> Log:
    made = store.log("mqtt")
    made.append_many([b"x"] * 20, topic="a")
    return made


def saved(groups: Groups) -> dict[str, bytes]:
    documents, _ = groups.changes(0)
    return {key: document for key, document in documents.items() if document is not None}


def restored(documents: dict[str, bytes], log: Log, *sessions: str) -> Groups:
    groups = Groups()
    groups.restore(documents, {"mqtt": log}.get, dict.fromkeys(sessions, True), LOG)
    return groups


@pytest.mark.parametrize(
    ("version", "more"),
    [
        (1, ""),
        (2, ',"owner":"a","unused_s":0.0'),
        (3, ',"owner":"a","unused_s":0.0,"sent_below":0'),
        (4, ',"owner":"a","unused_s":0.0,"sent_below":0'),
    ],
)
def test_document_is_read_in_every_version_and_written_in_the_newest(
    log: Log, version: int, more: str
) -> None:
    common = f'"id":{log.id},"seen":9,"open":[[2,4],[7,8]],"held":{{"a":[3]}},"members":["a","b"]'
    key = KEY_PREFIX + "mqtt/$share/g/a"
    groups = restored({key: f'{{"version":{version},{common}{more}}}'.encode()}, log, "a", "b")
    group = groups.find(log, "$share/g/a")
    assert group is not None and (group.seen, group.committed) == (9, 2)
    assert group.next_returned() == [2, 7] and group.held == {"a": {3}}
    assert groups.tally.of("a") == 1
    written = f'{{"version":4,{common},"owner":"a","unused_s":0.0,"sent_below":0}}'
    assert saved(groups) == {key: written.encode()}


@pytest.mark.parametrize(
    ("sessions", "sent_below"),
    [({"a": True, "b": True}, 12), ({"a": True, "b": False}, 20), ({"a": True}, 20)],
    ids=["away", "connected", "clean session"],
)
def test_group_may_have_handed_out_everything_when_a_member_was_connected_at_a_kill(
    log: Log, sessions: dict[str, bool], sent_below: int
) -> None:
    document = (
        b'{"version":3,"id":%d,"seen":9,"open":[],"held":{},"members":["a","b"],"owner":"a","unused_s":0,'
        b'"sent_below":12}' % log.id
    )
    groups = Groups()
    groups.restore({KEY_PREFIX + "mqtt/$queue/q/a": document}, {"mqtt": log}.get, sessions, LOG)
    group = groups.find(log, "$queue/q/a")
    assert group is not None and group.sent_below == sent_below


def test_messages_held_by_an_ended_session_are_delivered_to_no_other(log: Log) -> None:
    document = b'{"version":1,"id":%d,"seen":9,"open":[[2,4]],"held":{"a":[3]},"members":["a","b"]}' % log.id
    groups = restored({KEY_PREFIX + "mqtt/$share/g/a": document}, log, "b")
    group = groups.find(log, "$share/g/a")
    assert group is not None and group.open_offsets == {2} and list(group.members) == ["b"]


def test_offsets_beyond_the_end_of_the_log_are_not_restored(log: Log) -> None:
    document = (
        b'{"version":1,"id":%d,"seen":30,"open":[[2,3],[18,10000000000]],"held":{},"members":["a"]}' % log.id
    )
    group = restored({KEY_PREFIX + "mqtt/$share/g/a": document}, log, "a").find(log, "$share/g/a")
    assert group is not None and group.seen == 20 and group.open_offsets == {2, 18, 19}


@pytest.mark.parametrize(("kind", "left"), [("$share", 0), ("$queue", 1)])
def test_group_without_sessions_is_kept_only_if_it_is_a_queue(log: Log, kind: str, left: int) -> None:
    document = b'{"version":1,"id":%d,"seen":9,"open":[],"held":{},"members":["a"]}' % log.id
    groups = restored({KEY_PREFIX + f"mqtt/{kind}/g/a": document}, log)
    assert len(groups) == left


def test_group_starts_at_the_beginning_of_a_log_with_another_identity(log: Log) -> None:
    document = b'{"version":1,"id":1,"seen":9,"open":[],"held":{},"members":["a"]}'
    group = restored({KEY_PREFIX + "mqtt/$queue/g/a": document}, log, "a").find(log, "$queue/g/a")
    assert group is not None and group.seen == 0


_BODY: dict[str, object] = {
    "version": 2,
    "owner": "a",
    "unused_s": 0,
    "id": None,
    "seen": 3,
    "open": [[1, 2]],
    "held": {},
    "members": ["a"],
}
_WRONG_FIELDS = [
    {"seen": "x"}, {"seen": -1}, {"seen": 1.5}, {"open": [[0, 10**20]]}, {"open": [5]}, {"open": "ab"}, {"held": []},
    {"held": {"a": "abc"}}, {"held": {"a": ["x"]}}, {"members": 5}, {"members": [["a"]]}, {"owner": 5},
    {"unused_s": "x"}, {"unused_s": float("nan")},
]  # fmt: skip


@pytest.mark.parametrize("change", _WRONG_FIELDS, ids=str)
def test_document_with_an_invalid_field_affects_only_its_group(
    log: Log, change: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    body = _BODY | {"id": log.id}
    documents = {
        KEY_PREFIX + "mqtt/$share/bad/a": json.dumps(body | change).encode(),
        KEY_PREFIX + "mqtt/$share/good/a": json.dumps(body).encode(),
    }
    groups = restored(documents, log, "a")
    assert groups.find(log, "$share/bad/a") is None
    assert groups.find(log, "$share/good/a") is not None
    assert len(caplog.messages) == 1 and "'$share/bad/a' begins again" in caplog.text


@pytest.mark.parametrize("document", [b"{}", b'{"version":3}', *DAMAGED_JSON.values()])
def test_undecodable_document_is_logged_and_skipped(
    log: Log, document: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    assert len(restored({KEY_PREFIX + "mqtt/$share/g/a": document}, log)) == 0
    assert "begins again" in caplog.text


def test_queue_ends_after_its_time_without_members(log: Log) -> None:
    clock = StepClock()
    groups = Groups()
    time = PassingTime(clock)

    def pass_time(groups: Groups, seconds: int) -> int:
        clock.advance(1000 * seconds)
        groups.expire(time, 100)
        return len(groups)

    group = groups.get(log, "$queue/q/a", owner="c")
    groups.joined(group, "c")
    assert pass_time(groups, 1000) == 1
    groups.session_ended("c")
    assert pass_time(groups, 0) == 1
    assert pass_time(groups, 90) == 1
    groups.joined(group, "d")
    assert pass_time(groups, 90) == 1
    groups.session_ended("d")
    assert pass_time(groups, 0) == 1
    documents = saved(groups)
    assert pass_time(groups, 60) == 1
    clock.step(10 * 365 * 86_400_000)
    again = restored(documents, log)
    assert (pass_time(again, 0), pass_time(again, 39), pass_time(again, 1)) == (1, 1, 0)
    assert again.tally.of("c") == again.tally.total == 0
    time = PassingTime(clock)  # what has passed was lost
    again = restored(documents, log)
    assert (pass_time(again, 0), pass_time(again, 99), pass_time(again, 1)) == (1, 1, 0)
    assert saved(again) == {}


def test_queue_is_kept_when_queues_never_expire(log: Log) -> None:
    groups = Groups()
    groups.joined(groups.get(log, "$queue/q/a"), "c")
    groups.session_ended("c")
    clock = StepClock()
    time = PassingTime(clock)
    for _ in range(2):
        clock.advance(1 << 42)
        groups.expire(time, NEVER_S)
    assert len(groups) == 1


def test_ended_group_removes_its_documents(log: Log) -> None:
    groups = Groups()
    group = groups.get(log, "$share/g/a")
    groups.joined(group, "c")
    documents, readers = groups.changes(5)
    assert list(documents) == [KEY_PREFIX + "mqtt/$share/g/a"]
    assert {key: json.loads(one or b"")["offset"] for key, one in readers.items()} == {
        "mqtt-0/$share/g/a": 20
    }
    assert groups.changes(5) == ({}, {})
    groups.session_ended("c")
    assert groups.changes(5) == ({KEY_PREFIX + "mqtt/$share/g/a": None}, {"mqtt-0/$share/g/a": None})
    assert len(groups) == 0
