"""Resolution of a SUBSCRIBE to the offset where its replay begins."""

import pytest

from mqtt_front.codec.packets import Request, Subscribe
from mqtt_front.codec.properties import Properties
from mqtt_front.sessions.replay import Beginning, beginning, start_of, times, wishes
from mqtt_front.topics.filter_form import parse_filter
from mqtt_front.topics.replay_start import EARLIEST, LATEST, Start, StartKind
from timestone.errors import InvalidName
from timestone.log import Log
from timestone.store import Store


def subscribe(topic_filter: str, **said: str) -> Subscribe:
    users = tuple((name.replace("_", "-"), value) for name, value in said.items())
    return Subscribe(1, (Request(topic_filter, 1),), Properties(user_properties=users))


@pytest.fixture
def log(store: Store) -> Log:
    made = store.log("mqtt")
    made.append_many([b"x"] * 10, topic="a")
    return made


@pytest.mark.parametrize(
    ("topic_filter", "said", "start"),
    [
        ("$stream/mqtt/a", {}, LATEST),
        ("$stream/mqtt/a", {"stream_offset": "earliest"}, EARLIEST),
        ("$stream/mqtt/@latest/a", {"stream_offset": "earliest"}, LATEST),
        ("$queue/q/a", {"stream_offset": "earliest"}, EARLIEST),
        ("$share/g/a", {"stream_offset": "earliest"}, LATEST),
        ("$share/g/$stream/mqtt/a", {"stream_offset": "earliest"}, EARLIEST),
    ],
)
def test_start_in_the_filter_overrides_the_user_property(
    topic_filter: str, said: dict[str, str], start: Start
) -> None:
    assert start_of(parse_filter(topic_filter), wishes(subscribe(topic_filter, **said), 5)) == start


def test_invalid_start_property_matters_only_to_replays_and_queues() -> None:
    wished = wishes(subscribe("a", stream_offset="x"), 5)
    with pytest.raises(InvalidName, match="'x' is not a position"):
        start_of(parse_filter("$stream/mqtt"), wished)
    assert times([Request("a"), Request("$stream/mqtt"), Request("#/")], wished) == set()
    assert wishes(subscribe("a", stream_offset="x"), 4).start is None


def test_only_a_start_by_time_needs_the_disk() -> None:
    requests = [
        Request(f"$stream/mqtt/{start}/a")
        for start in ("@earliest", "@offset:1", "@time:1970-01-01T00:00:01Z")
    ]
    assert times(requests, wishes(subscribe("a"), 5)) == {Start(StartKind.TIME, 1_000_000)}


@pytest.mark.parametrize(("text", "reset"), [("1", True), ("true", True), ("no", False), ("", False)])
def test_reset_property_accepts_several_words(text: str, reset: bool) -> None:
    assert wishes(subscribe("a", stream_reset=text), 5).reset is reset


def test_start_is_resolved_to_an_offset_of_the_log(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    times_us = [record.timestamp_us for record in log.reader()]
    assert beginning(log, EARLIEST) == (0, False)
    assert beginning(log, LATEST) == (10, False)
    assert beginning(log, Start(StartKind.OFFSET, 4)) == (4, False)
    assert beginning(log, Start(StartKind.OFFSET, 10)) == (10, False)
    assert beginning(log, Start(StartKind.TIME, 0)) == (0, False)
    assert beginning(log, Start(StartKind.TIME, times_us[-1] + 1)) == (10, False)
    with pytest.raises(InvalidName, match="offset 11 of log mqtt, which ends at 10"):
        beginning(log, Start(StartKind.OFFSET, 11))


def test_start_deleted_by_retention_is_reported(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_start_offset", 3)
    first_us = log.record(3).timestamp_us
    monkeypatch.setattr(log, "offset_at", lambda time_us: 3)
    assert beginning(log, EARLIEST) == (3, False)
    assert beginning(log, Start(StartKind.OFFSET, 2)) == Beginning(3, True)
    assert beginning(log, Start(StartKind.OFFSET, 3)) == Beginning(3, False)
    assert beginning(log, Start(StartKind.TIME, first_us - 1)) == Beginning(3, True)
    assert beginning(log, Start(StartKind.TIME, first_us)) == Beginning(3, False)


def test_offset_that_a_copy_has_not_yet_is_its_end(log: Log) -> None:
    beyond = Start(StartKind.OFFSET, log.end_offset + 5)
    with pytest.raises(InvalidName):
        beginning(log, beyond)
    assert beginning(log, beyond, is_copy=True) == Beginning(log.end_offset, False)
    named = Start(StartKind.OFFSETS, 0, ((0, 1), (4, 0)))
    assert beginning(log, named).offset == 1
