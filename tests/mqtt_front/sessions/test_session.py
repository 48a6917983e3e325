"""The content of a session: subscriptions with their first offset, and deliveries in flight."""

import pytest

from mqtt_front.feeds.feed import LogSource
from mqtt_front.feeds.subscription import Subscription
from mqtt_front.sessions.session import InFlight, Session
from tests.support.committed import committed
from timestone.store import Store


@pytest.fixture
def source(store: Store) -> LogSource:
    log = store.log("mqtt")
    log.append_many([b"before"] * 10, topic="a")
    return LogSource.of(log)


@pytest.fixture
def session(source: LogSource) -> Session:
    session = Session("c")
    session.subscribe(Subscription("a", 1), [source])
    return session


def fly(session: Session, *offsets: int) -> list[int]:
    """Put offsets in flight; returns their packet ids."""
    feed = session.feeds["mqtt"]
    ids = session.packet_ids.take(len(offsets), session.in_flight)
    for packet_id, offset in zip(ids, offsets, strict=True):
        session.in_flight[packet_id] = InFlight(feed, offset, 1)
    feed.window.sent(offsets)
    feed.window.seen = max(offsets) + 1
    session.outstanding += len(ids)
    return ids


def test_subscription_begins_at_the_end_of_the_log(session: Session, source: LogSource) -> None:
    assert session.subscriptions["a"].since == {"mqtt": 10}
    source.log.append(b"x", topic="a")
    session.subscribe(Subscription("b", 0), [source])
    assert session.subscriptions["b"].since == {"mqtt": 11}
    assert committed(session) == {"mqtt": 10}


def test_resubscribing_changes_options_and_keeps_the_position(session: Session, source: LogSource) -> None:
    source.log.append(b"x", topic="a")
    assert session.subscribe(Subscription("a", 0, identifier=5), [source]) is False
    (subscription,) = session.subscriptions.values()
    assert (subscription.qos, subscription.identifier, subscription.since) == (0, 5, {"mqtt": 10})


def test_acknowledgements_are_accepted_in_any_order_and_twice(session: Session) -> None:
    ids = fly(session, 10, 12, 13)
    assert session.acknowledged([ids[2], ids[1]]) == []
    assert committed(session) == {"mqtt": 10}
    assert session.acknowledged([ids[1], 999]) == [ids[1], 999], "no delivery has them"
    assert session.outstanding == 1
    session.acknowledged([ids[0]])
    assert committed(session) == {"mqtt": 14}
    assert session.outstanding == 0 and not session.in_flight


def test_deliveries_in_flight_outlive_their_subscription(session: Session) -> None:
    ids = fly(session, 10)
    assert session.unsubscribe("a")
    session.feeds.drop_idle()
    assert committed(session) == {"mqtt": 10}
    session.acknowledged(ids)
    session.feeds.drop_idle()
    assert session.feeds == {}
    assert not session.unsubscribe("a")


def test_attach_resends_from_the_committed_offset(session: Session, source: LogSource) -> None:
    source.log.append_many([b"x"] * 5, topic="a")
    ids = fly(session, 10, 11, 12)
    session.acknowledged([ids[1]])
    assert session.attach(lambda woken: None) == {}
    feed = session.feeds["mqtt"]
    assert feed.reader is not None and feed.reader.offset == 10
    assert feed.resend == {10: (ids[0], 1), 12: (ids[2], 1)}
    assert session.outstanding == 0, "nothing was sent on this connection"


def test_acknowledged_delivery_of_an_earlier_connection_is_not_resent(
    session: Session, source: LogSource
) -> None:
    source.log.append_many([b"x"] * 5, topic="a")
    ids = fly(session, 10, 11)
    session.attach(lambda woken: None)
    session.acknowledged([ids[0]])
    assert session.feeds["mqtt"].resend == {11: (ids[1], 1)}
    assert session.outstanding == 0


def test_only_no_local_subscriptions_need_the_publisher(session: Session, source: LogSource) -> None:
    wanted = [session.no_local]
    session.subscribe(Subscription("b", 1, no_local=True), [source])
    wanted.append(session.no_local)
    session.unsubscribe("b")
    assert [*wanted, session.no_local] == [False, True, False]
