"""A single record is sent at once; what it refuses is in `delivery/test_packing.py`."""

import functools

import pytest

from mqtt_front.delivery.delivery import DeliveryCounts
from mqtt_front.feeds.feed import Feed, FeedState, FeedWake, LogSource
from mqtt_front.feeds.subscription import Subscription
from mqtt_front.kernel import loops
from mqtt_front.runtime.traces import NO_TRACES
from mqtt_front.sessions.session import InFlight, Session
from tests.support.mqtt_clients import FakeClient
from timestone.log import Log
from timestone.reader import Reader
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch

pytestmark = pytest.mark.skipif(
    loops.NAME != "native", reason="the compiled kernel was not built: make install"
)


@pytest.fixture
def log(store: Store) -> Log:
    return store.log("mqtt")


class Parts:
    """A client that is subscribed to a topic and knows how its records are sent."""

    def __init__(self, log: Log, *, qos: int, expiry_s: int = 0) -> None:
        self.log = log
        self.changed: list[Session] = []
        self.counts = DeliveryCounts()
        self.sent = self.counts.by_log
        self.delivery = loops.SingleDelivery(
            FeedState.PARKED, InFlight, self.changed.append, self.counts, NO_TRACES, FeedWake
        )
        self.session, self.client = Session("c", expiry_s), FakeClient()
        self.session.subscribe(Subscription("t", qos), [LogSource.of(log)])
        self.session.client = self.client
        self.session.attach(lambda woken: None)
        self.feed: Feed = self.session.feeds["mqtt"]
        form = self.feed.form(log.topic_id("t"), with_block=False)
        assert form is not None
        self.feed.forms[log.topic_id("t")] = form

    def send(self, payload: bytes, qos: int = 1) -> int:
        """Append a record and send it."""
        write_batch = WriteBatch.single(payload, self.log.topic_id("t"), qos << 1)
        self.log.append_batch(write_batch, ack="written")
        return self.again()

    def again(self) -> int:
        sent: int = self.delivery.send(self.feed)
        return sent


def test_record_is_sent_and_the_feed_is_parked(log: Log) -> None:
    parts = Parts(log, qos=1, expiry_s=60)
    assert [parts.send(b"a"), parts.send(b"b", 0)] == [1, 1]
    assert [(one.payload, one.qos, one.packet_id) for one in parts.client.take()] == [
        (b"a", 1, 1),
        (b"b", 0, 0),
    ]
    session = parts.session
    assert (session.outstanding, session.in_flight, session.packet_ids.last) == (
        1,
        {1: InFlight(parts.feed, 0, 1)},
        1,
    )
    assert type(session.in_flight[1]) is InFlight
    assert parts.feed.window.in_flight_count == 1 and parts.feed.window.seen == 2
    assert parts.feed.state is FeedState.PARKED and isinstance(parts.feed.reader, Reader)
    assert parts.feed.reader in log.wakeups.parked
    assert parts.changed == [session, session] and parts.client.delivery_count == 2
    assert parts.sent == {"mqtt": 2}


def test_packet_id_in_use_is_not_given_again(log: Log) -> None:
    parts = Parts(log, qos=1)
    parts.session.packet_ids.last = 65_534
    parts.session.in_flight[1] = InFlight(parts.feed, 0, 1)
    assert [parts.send(b"a"), parts.send(b"b")] == [1, 1]
    assert [one.packet_id for one in parts.client.take()] == [65_535, 2]


def test_session_without_expiry_is_not_reported(log: Log) -> None:
    parts = Parts(log, qos=0)
    assert parts.send(b"a") == 1 and parts.changed == []


def test_feed_with_more_to_read_is_not_parked(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(log, qos=0)
    parts.feed.state = FeedState.READY
    with monkeypatch.context() as patched:  # another record arrives while it is sent
        append = functools.partial(log.append, b"b", topic="t", ack="written")
        patched.setattr(parts.client, "deliver", lambda data: append())
        assert parts.send(b"a", 0) == 2
    assert parts.feed.state is FeedState.READY and parts.feed.reader is not None
    assert parts.feed.reader.offset == 1
    assert [parts.again(), parts.again()] == [1, 0], "the reader is behind the last record"


def test_record_in_front_of_others_is_not_sent_alone(log: Log) -> None:
    parts = Parts(log, qos=0)
    log.append_many([b"a", b"b"], topic="t", ack="written")
    assert parts.send(b"c", 0) == 0


@pytest.mark.parametrize("why", ["released", "QoS 2", "no client", "saving"])
def test_anything_unusual_changes_nothing(log: Log, why: str) -> None:
    parts = Parts(log, qos=2)
    if why == "released":
        parts.session.released[7] = None
    elif why == "no client":
        parts.session.client = None
    elif why == "saving":
        parts.session.saving_count = 1
    reader = parts.feed.reader
    assert reader is not None
    assert parts.send(b"a", 2 if why == "QoS 2" else 1) == 0
    assert (parts.client.publishes, parts.session.in_flight, reader.offset) == ([], {}, 0)
