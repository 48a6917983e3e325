"""Which feed a topic filter gets, and what becomes of the feeds of filters that have ended."""

import pytest

from mqtt_front.feeds.feed import LogSource
from mqtt_front.feeds.shared_feed import SharedFeed
from mqtt_front.feeds.stream_feed import StreamFeed
from mqtt_front.feeds.subscription import Subscription
from mqtt_front.sessions.replay import Beginning
from mqtt_front.sessions.session import Session
from timestone.store import Store


@pytest.fixture
def source(store: Store) -> LogSource:
    log = store.log("mqtt")
    log.append_many([b"before"] * 10, topic="a")
    return LogSource.of(log)


def test_plain_filters_share_the_feed_of_the_log(source: LogSource) -> None:
    session = Session("c")
    session.subscribe(Subscription("a", 1), [source])
    session.subscribe(Subscription("b/#", 0), [source])
    assert list(session.feeds) == ["mqtt"]


def test_shared_filter_and_replay_get_a_feed_of_their_own(source: LogSource) -> None:
    session = Session("c")
    session.subscribe(Subscription("$share/g/a", 1), [source])
    session.subscribe(Subscription("$stream/mqtt/a", 1), [source], {"mqtt": Beginning(4, True)})
    shared, stream = session.feeds.values()
    assert isinstance(shared, SharedFeed) and isinstance(stream, StreamFeed)
    assert (stream.window.committed, stream.gap) == (4, 4)


def test_feed_with_deliveries_in_flight_makes_room_for_the_next_of_its_filter(source: LogSource) -> None:
    session, topic_filter = Session("c"), "$stream/mqtt/a"
    subscription = Subscription(topic_filter, 1)
    session.subscribe(subscription, [source], {"mqtt": Beginning(0, False)})
    (first,) = session.feeds.values()
    first.window.sent([3])
    first.window.seen = 4
    session.unsubscribe(topic_filter)
    session.subscribe(subscription, [source], {"mqtt": Beginning(7, False)})
    key, second = next((key, feed) for key, feed in session.feeds.items() if feed is not first)
    assert session.feeds == {first.key: first, key: second} and first.key.startswith("ended/")
    first.window.acknowledged(3)
    session.feeds.drop_idle()
    assert session.feeds == {key: second}
