"""The reader of a feed: no change of subscriptions makes it miss or repeat a record."""

import pytest

from mqtt_front.feeds.feed import Feed, FeedState, LogSource
from mqtt_front.feeds.subscription import Subscription
from mqtt_front.sessions.session import Session
from timestone.log import Log
from timestone.reader import Reader
from timestone.store import Store


@pytest.fixture
def log(store: Store) -> Log:
    return store.log("mqtt")


def attached(log: Log, *filters: str) -> tuple[Session, Feed]:
    session = Session("c")
    for topic_filter in filters:
        session.subscribe(Subscription(topic_filter, 1), [LogSource.of(log)])
    session.attach(lambda woken: None)
    return session, session.feeds["mqtt"]


def test_grant_of_a_topic_is_computed_once(log: Log) -> None:
    _, feed = attached(log, "a/#", "+/b")
    topic_id = log.topic_id("a/b")
    grant = feed.grant(topic_id)
    assert grant is not None and grant is feed.grant(topic_id)
    assert grant.head == b"\0\3a/b"
    assert feed.grant(log.topic_id("x")) is None
    assert feed.grant(0xFFFFFFFF) is None, "a record without a topic matches no subscription"


@pytest.mark.parametrize("others", [0, 7, 8, 100])
def test_grants_are_the_same_for_any_number_of_filters(log: Log, others: int) -> None:
    """Few are tried one by one, many are found in a tree."""
    _, feed = attached(log, "a/#", "+/b", "#", *(f"other/{number}" for number in range(others)))
    for topic, matching in (("a/b", 3), ("a", 2), ("x/b", 2), ("y", 1), ("$x/b", 0), ("other/6", 2)):
        found = feed.grant(log.topic_id(topic))
        wanted = matching - (topic == "other/6" and others <= 6)
        assert (found is not None, len(list(feed._matching(topic)))) == (wanted > 0, wanted)


def test_grants_are_computed_again_when_a_subscription_changes(log: Log) -> None:
    session, feed = attached(log, "a")
    topic_id = log.topic_id("b")
    assert feed.grant(topic_id) is None
    session.subscribe(Subscription("b", 0), [LogSource.of(log)])
    grant = feed.grant(topic_id)
    assert grant is not None and grant.qos == 0


def test_late_wake_up_for_old_filters_does_not_skip_records_of_new_ones(log: Log) -> None:
    """A subscription is added while a wake-up for the old ones is on its way from the committer's thread. If the same
    reader had continued with other filters, the wake-up would have moved it behind the first record of the new one."""
    session, feed = attached(log, "old")
    old_reader = feed.reader
    assert isinstance(old_reader, Reader) and old_reader.park()
    session.subscribe(Subscription("new", 1), [LogSource.of(log)])
    log.append(b"1", topic="new")
    old_reader.wake(log.append(b"2", topic="old"))
    assert feed.reader is not None and feed.reader is not old_reader
    assert feed.state is FeedState.DETACHED, "the server has to look after it again"
    assert feed.reader.read().payloads() + feed.reader.read().payloads() == [b"1", b"2"]


def test_closed_reader_is_removed_from_the_log(log: Log) -> None:
    session, feed = attached(log, "a")
    assert feed.reader is not None and feed.reader.park()
    assert len(log.wakeups.parked) == 1
    session.detach()
    assert not log.wakeups.parked
    assert feed.state is FeedState.DETACHED


def test_only_feeds_with_acknowledged_deliveries_use_the_window(log: Log) -> None:
    session, feed = attached(log, "a")
    assert feed.needs_packet_ids
    session.subscribe(Subscription("a", 0), [LogSource.of(log)])
    assert not feed.needs_packet_ids


def test_start_deleted_by_retention_is_reported(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session("c")
    session.subscribe(Subscription("a", 1), [LogSource.of(log)])
    log.append_many([b"x"] * 10, topic="a")
    monkeypatch.setattr(log, "_start_offset", 7)
    assert session.attach(lambda woken: None) == {"mqtt": 7}
    reader = session.feeds["mqtt"].reader
    assert isinstance(reader, Reader) and reader.offset == 7
