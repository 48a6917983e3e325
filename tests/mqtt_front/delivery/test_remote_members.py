"""Requests of other homes: what a group does with damage, nonsense, and reads of the disk. Assignment itself is
tested in `feeds.test_remote_group`."""

import itertools
import json
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mqtt_front.delivery.remote_members import RemoteMembers
from mqtt_front.feeds.group_store import home_key
from tests.support.two_homes import FILTER, TwoHomes
from timestone.errors import CorruptRecord, OffsetOutOfRange, StoreClosed
from timestone.reading.batch import Batch
from timestone.store import Store


@pytest.fixture
def homes(store: Store) -> Iterator[TwoHomes]:
    with ThreadPoolExecutor(1) as executor:
        yield TwoHomes(store.log("mqtt", 1), executor).start()


class Home:
    """Home 0 by hand."""

    def __init__(self, homes: TwoHomes) -> None:
        homes.cut()
        self._homes, self.is_open, self._numbers = homes, True, itertools.count(10)
        self.answers: list[dict[str, Any]] = []

    def send(self, data: bytes) -> None:
        self.answers.append(json.loads(data))

    def say(self, groups: Any, number: int = 1, **more: Any) -> list[dict[str, Any]]:
        """Send a message, and return the answers."""
        self.answers.clear()
        message = {"connection": number, "number": next(self._numbers), "groups": groups, **more}
        self._homes.leader.heard(0, json.dumps(message).encode(), self)
        self._homes.loop.settle()
        return list(self.answers)


def entry(homes: TwoHomes, **changed: Any) -> dict[str, Any]:
    """Return what a home says of a group."""
    base = {"log": homes.log.name, "filter": FILTER, "start": 0, "owner": "", "connected": 1, "asks": []}
    first = {"held": [], "unsure_below": 0}
    return {**base, **first, "once": False, "done": [], "returned": [], "again": [], **changed}


def test_request_gets_what_it_has_room_for_and_the_next_one_what_follows(homes: TwoHomes) -> None:
    homes.publish(10)
    home = Home(homes)
    assert home.say([entry(homes, asks=[3])], is_first=True) == [
        {"connection": 1},
        {
            "connection": 1,
            "log": "mqtt",
            "filter": FILTER,
            "offsets": [0, 1, 2],
            "again_below": 0,
            "once": False,
        },
    ]
    assert [each["offsets"] for each in home.say([entry(homes, asks=[2], done=[0, 1])])] == [[3, 4]]
    answers = home.say([entry(homes, asks=[9], returned=[2], again=[2])])
    assert [(each["offsets"], each["again_below"]) for each in answers] == [([2], 3)]
    answers = home.say([entry(homes, asks=[9], returned=[4])])
    assert [(each["offsets"], each["again_below"]) for each in answers] == [([4], 0)]
    (group,) = homes.groups[1]
    assert group.held == {home_key(0): {2, 3, 4}}
    assert home.say([entry(homes, asks=[1])], number=2) == [], "of another connection"
    home.say([entry(homes, is_over=True)])
    assert (list(group.members), group.held, group.connected_count) == ([], {}, 0)
    assert home.say([entry(homes, is_over=True, filter="$share/new/t")]) == []
    assert [one.topic_filter for one in homes.groups[1]] == [FILTER]


def test_requests_end_with_the_last_connected_member(homes: TwoHomes) -> None:
    home = Home(homes)
    home.say([entry(homes, asks=[1, 1], connected=2)], is_first=True)
    home.say([entry(homes, connected=0)])
    homes.publish(2)
    assert home.answers == []
    assert [each["offsets"] for each in home.say([entry(homes, asks=[5])])] == [[0, 1]]


@pytest.mark.parametrize(
    "groups",
    [None, 7, [7], [{}], [{"log": "mqtt"}], ["x"]],
)
def test_nonsense_is_ignored(homes: TwoHomes, groups: object, caplog: pytest.LogCaptureFixture) -> None:
    home = Home(homes)
    with caplog.at_level(logging.WARNING):
        assert home.say(groups, is_first=True) == [{"connection": 1, "agree": True}]
    assert "home 0: a message is not understood" in caplog.text
    homes.leader.heard(0, b"{", home)
    homes.publish(1)
    answers = home.say([entry(homes, asks=[1]), entry(homes, log="unknown")], is_first=True, number=2)
    assert [each["connection"] for each in answers] == [2, 2]
    wrong: list[dict[str, Any]] = [{"asks": [-1]}, {"filter": "$share/"}, {"start": -1}]
    for number, broken in enumerate(wrong, 3):
        home.say([entry(homes)], is_first=True, number=number)
        assert home.say([entry(homes, **broken)], number=number) == [{"connection": number, "agree": True}]


@pytest.mark.parametrize(
    ("error", "offsets"),
    [
        (OffsetOutOfRange(0, 2, 4), [2, 3]),
        (CorruptRecord(Path("mqtt"), 2, "bad"), [3]),
        (OSError("the disk"), [0, 1, 2, 3]),
        (StoreClosed(), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_records_that_cannot_be_read_are_passed_over(
    homes: TwoHomes, error: Exception, offsets: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    homes.publish(4)
    home, read, errors = Home(homes), RemoteMembers._records, [error]

    def records(request: Any) -> Batch:
        if errors:
            raise errors.pop()
        return read(request)

    monkeypatch.setattr(RemoteMembers, "_records", staticmethod(records))
    home.say([entry(homes, asks=[9])], is_first=True)
    homes.loop.pass_time(2)
    found = [one["offsets"] for one in home.answers if "offsets" in one]
    assert found == ([] if offsets is None else [offsets])


def test_disk_is_read_by_a_thread_and_what_it_finds_is_not_lost_when_nobody_wants_it(
    homes: TwoHomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    homes.publish(2)
    home = Home(homes)
    reads: list[tuple[Callable[[], Batch], Callable[[Batch | Exception], None]]] = []
    homes.leader._read = lambda work, then: reads.append((work, then))
    monkeypatch.setattr(type(homes.log), "in_memory", lambda self, offset: False)
    home.say([entry(homes, asks=[9])], is_first=True)
    ((work, then),) = reads
    home.say([entry(homes, connected=0)])
    then(work())
    homes.loop.settle()
    assert home.answers == []
    home.say([entry(homes, asks=[9])])
    work, then = reads[-1]
    then(work())
    assert [one["offsets"] for one in home.answers] == [[0, 1]]


def test_nothing_is_assigned_before_the_state_is_read_and_after_the_front_has_left(homes: TwoHomes) -> None:
    home = Home(homes)
    homes.leader.close()
    assert home.say([entry(homes, asks=[1])], is_first=True) == []
    homes.leader.open()
    assert home.say([entry(homes, asks=[1])], is_first=True) == [{"connection": 1}]
    homes.leader.close()
    homes.publish(1)
    assert home.answers == [{"connection": 1}]
