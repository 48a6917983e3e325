"""Packets that a session gets for a run of records."""

import numpy as np
import pytest

from mqtt_front.codec.packets import Publish
from mqtt_front.codec.properties import NO_PROPERTIES, Properties
from mqtt_front.delivery import packing
from mqtt_front.delivery.delivery import DeliveryCounts
from mqtt_front.delivery.packing import Packed, pack
from mqtt_front.feeds.feed import Feed, FeedState, FeedWake, LogSource
from mqtt_front.feeds.shared_reads import SharedReads
from mqtt_front.feeds.subscription import Subscription
from mqtt_front.kernel import loops
from mqtt_front.protocol.header_block import header_block
from mqtt_front.protocol.topic_aliases import OutgoingAliases
from mqtt_front.runtime.clocks import PassingTime
from mqtt_front.runtime.traces import NO_TRACES
from mqtt_front.sessions.session import InFlight, Session, Target
from tests.support.committed import committed
from tests.support.mqtt_clients import FakeClient, parse
from tests.support.step_clock import StepClock
from timestone.kernel.entries import ENTRY
from timestone.log import Log
from timestone.record import Header, HeaderKind, encode_headers
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch

PROPERTY = header_block(Properties(content_type="x"))
V3, V5 = Target(4, 1 << 28), Target(5, 1 << 28)
Single = tuple[int, int, int, int, bytes]
singles: list[int] = []
"""Offsets that were sent one by one, as far as that is tried at all."""
SENDERS = {
    name: loops.SingleDelivery(
        FeedState.PARKED, InFlight, lambda session: None, DeliveryCounts(), NO_TRACES, FeedWake
    )
    for name in (loops.NAME,)
    if name == "native"
}
tried_sender = ""


@pytest.fixture(params=["", *SENDERS], ids=["batches", *SENDERS], autouse=True)
def tried(request: pytest.FixtureRequest) -> str:
    """Are records that were appended by themselves tried one by one first, as `Delivery` does? It makes no
    difference."""
    global tried_sender
    tried_sender = str(request.param)
    singles[:] = [-1] if tried_sender else []
    return tried_sender


class Receiver(FakeClient):
    """Client that keeps the bytes."""

    data = b""

    def deliver(self, data: bytes, count: int = 0) -> None:
        self.data += data


def single_of(feed: Feed) -> Single | None:
    """Return the next record as `Log.single` would if it were the last one."""
    assert feed.reader is not None
    offset = feed.reader.offset
    run = feed.log._tail.find(offset)
    if run is None or run.end_offset - run.base_offset != 1:
        return None
    entry = np.frombuffer(run.entries, ENTRY)[0]
    topic_id, flags, header_length = (int(entry[name]) for name in ("topic", "flags", "header_length"))
    return offset, topic_id, flags, header_length, run.stored.joined()


def sent_alone(feed: Feed, single: Single, target: Target, sender: str) -> bytes | None:
    """Return the packet that a twin has sent for a record; None if it did nothing."""
    client = Receiver()
    client.target = target
    feed.session.client = client
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(feed.log, "single", lambda offset: single if offset == single[0] else None)
        sent = SENDERS[sender].send(feed)
    assert (sent > 0) == (client.delivery_count > 0) == (client.data != b"")
    return client.data if sent else None


@pytest.fixture
def log(store: Store) -> Log:
    return store.log("mqtt")


def append(
    log: Log, topic: str, payload: bytes = b"x", qos: int = 1, retain: bool = False, block: bytes = b""
) -> None:
    flags = qos << 1 | retain
    write_batch = WriteBatch([block + payload], log.topic_id(topic), flags=flags, header_lengths=len(block))
    log.append_batch(write_batch, ack="written")


def subscribed(log: Log, *subscriptions: Subscription, client_id: str = "c") -> Feed:
    session = Session(client_id)
    for subscription in subscriptions:
        session.subscribe(subscription, [LogSource.of(log)])
    session.attach(lambda woken: None)
    return session.feeds["mqtt"]


def packed(feed: Feed, target: Target = V3, now_us: int | None = None) -> tuple[list[Publish], Packed]:
    """Everything up to the end of the log, packed read by read; `now_us` is how long after the last append."""
    assert feed.reader is not None
    found: list[Publish] = []
    total = Packed(b"", 0, 0, 0)
    while not feed.reader.caught_up:
        single = single_of(feed) if singles else None
        alone = None if single is None else sent_alone(feed, single, target, tried_sender)
        if single is not None and alone is not None:
            feed.reader.seek(single[0] + 1)
            singles.append(single[0])
            found += [packet for packet in parse(alone, target.level)[0] if isinstance(packet, Publish)]
            total = total._replace(data=total.data + alone, delivered_count=total.delivered_count + 1)
            continue
        batch = feed.reader.read()
        clock_us = int(batch.timestamps_us[-1]) + (now_us or 0) if len(batch) else 0
        result = pack(feed, batch, target, PassingTime(StepClock(clock_us)))
        packets, rest = parse(result.data, target.level)
        assert rest == b""
        assert len(packets) == result.delivered_count
        found += [packet for packet in packets if isinstance(packet, Publish)]
        total = Packed(
            total.data + result.data,
            total.delivered_count + result.delivered_count,
            total.oversize_count + result.oversize_count,
            total.expired_count + result.expired_count,
        )
    return found, total


@pytest.mark.parametrize("granted", [0, 1, 2])
def test_qos_is_the_lower_of_published_and_granted(log: Log, granted: int) -> None:
    feed = subscribed(log, Subscription("t", granted))
    feed.qos0_from = 0
    for published in (0, 1, 2):
        append(log, "t", b"%d" % published, published)
    found, _ = packed(feed)
    assert [(one.payload, one.qos) for one in found] == [
        (b"%d" % published, min(published, granted)) for published in (0, 1, 2)
    ]
    ids = [one.packet_id for one in found if one.qos]
    assert len(set(ids)) == len(ids) and set(ids) == set(feed.session.in_flight)


def test_overlapping_subscriptions_give_one_copy_with_all_identifiers(log: Log) -> None:
    feed = subscribed(log, Subscription("a/#", 0, identifier=1), Subscription("a/+", 1, identifier=2))
    append(log, "a/b")
    append(log, "a/b/c", qos=0)
    found, _ = packed(feed, V5)
    assert [(one.topic, one.qos, one.properties.subscription_identifiers) for one in found] == [
        ("a/b", 1, (1, 2)),
        ("a/b/c", 0, (1,)),
    ]


def test_retain_flag_of_a_live_message_is_kept_only_with_retain_as_published(log: Log) -> None:
    plain, kept = (
        subscribed(log, Subscription("t", 1)),
        subscribed(log, Subscription("t", 1, retain_as_published=True)),
    )
    append(log, "t", retain=True)
    append(log, "t", retain=False)
    assert [one.retain for one in packed(plain)[0]] == [False, False]
    assert [one.retain for one in packed(kept)[0]] == [True, False]


def test_record_is_delivered_only_to_earlier_subscriptions(log: Log) -> None:
    feed = subscribed(log, Subscription("+", 1, identifier=1))
    append(log, "t", b"1")
    feed.session.subscribe(Subscription("t", 1, identifier=2), [LogSource.of(log)])
    append(log, "t", b"2")
    found, _ = packed(feed, V5)
    assert [(one.payload, one.properties.subscription_identifiers) for one in found] == [
        (b"1", (1,)),
        (b"2", (1, 2)),
    ]


SENT = Properties(
    payload_format_indicator=1, content_type="text", response_topic="r", correlation_data=b"c",
    user_properties=(("z", "1"), ("a", "2"), ("z", "1")),
)  # fmt: skip


def test_properties_are_forwarded_and_mqtt_3_gets_the_bare_payload(log: Log) -> None:
    old, new = subscribed(log, Subscription("t", 1)), subscribed(log, Subscription("t", 1))
    append(log, "t", b"rich", block=header_block(SENT))
    append(log, "t", b"plain")
    assert [(one.payload, one.properties) for one in packed(new, V5)[0]] == [
        (b"rich", SENT),
        (b"plain", NO_PROPERTIES),
    ]
    assert [one.payload for one in packed(old, V3)[0]] == [b"rich", b"plain"]


def test_expired_message_is_skipped_and_others_carry_their_remaining_time(log: Log) -> None:
    feed = subscribed(log, Subscription("t", 1))
    append(log, "t", b"short", block=header_block(Properties(message_expiry_interval=10)))
    append(log, "t", b"long", block=header_block(Properties(message_expiry_interval=100)))
    found, result = packed(feed, V5, now_us=10_500_000)
    assert [(one.payload, one.properties.message_expiry_interval) for one in found] == [(b"long", 90)]
    assert result.expired_count == 1
    assert feed.window.seen == 2


def test_message_too_large_for_the_client_counts_as_delivered(log: Log) -> None:
    feed = subscribed(log, Subscription("t", 1))
    append(log, "t", b"x" * 50)
    append(log, "t", b"x" * 500)
    append(log, "t", b"x" * 51)
    # Fixed header 2, topic 3, packet id 2: 50 bytes fit into 57, 51 do not.
    found, result = packed(feed, Target(4, 57))
    assert [len(one.payload) for one in found] == [50]
    assert result.oversize_count == 2
    assert committed(feed.session) == {"mqtt": 0}
    feed.session.acknowledged([found[0].packet_id])
    assert committed(feed.session) == {"mqtt": 3}, "no record that cannot be sent holds the session up"


def test_properties_count_towards_the_packet_size(log: Log) -> None:
    feed = subscribed(log, Subscription("t", 0, identifier=5))
    feed.qos0_from = 0
    append(log, "t", b"x" * 50, qos=0)
    append(log, "t", b"x" * 48, qos=0)
    found, result = packed(feed, Target(5, 2 + 3 + 3 + 49))
    assert [len(one.payload) for one in found] == [48]
    assert result.oversize_count == 1


def test_no_local_skips_the_clients_own_messages(log: Log) -> None:
    feed = subscribed(log, Subscription("t", 1, no_local=True), client_id="me")
    for publisher in ("me", "you"):
        block = encode_headers([Header(HeaderKind.PUBLISHER, "", publisher.encode())])
        append(log, "t", publisher.encode(), block=block)
    append(log, "t", b"nobody")
    assert [one.payload for one in packed(feed)[0]] == [b"you", b"nobody"]


def test_missed_messages_of_qos_0_are_skipped(log: Log) -> None:
    feed = subscribed(log, Subscription("t", 1))
    feed.qos0_from = 2
    for number, qos in enumerate((0, 1, 0)):
        append(log, "t", b"%d" % number, qos)
    assert [one.payload for one in packed(feed)[0]] == [b"1", b"2"]


def test_messages_in_flight_are_resent_first_with_packet_id_and_dup_after_a_reconnect(log: Log) -> None:
    feed = subscribed(log, Subscription("t", 1), Subscription("gone", 1))
    session = feed.session
    for number, topic in enumerate(["t", "t", "other", "gone", "t"]):
        append(log, topic, b"%d" % number)
    sent = {one.payload: one.packet_id for one in packed(feed)[0]}
    session.acknowledged([sent[b"1"]])
    session.detach()
    session.unsubscribe("gone")
    append(log, "t", b"5")
    session.attach(lambda woken: None)
    again, _ = packed(feed)
    assert [(one.payload, one.packet_id, one.duplicate) for one in again[:3]] == [
        (payload, sent[payload], True) for payload in (b"0", b"3", b"4")
    ]
    assert [(one.payload, one.duplicate) for one in again[3:]] == [(b"5", False)]
    assert again[3].packet_id not in sent.values()
    assert session.outstanding == 4


@pytest.mark.parametrize("qos", [1, 2])
def test_resend_too_large_for_the_client_counts_as_delivered(log: Log, qos: int) -> None:
    """At QoS 2 its packet id is released: the client may take another message under it for a repetition."""
    feed = subscribed(log, Subscription("t", qos))
    append(log, "t", b"x" * 100, qos=qos)
    packed(feed)
    feed.session.detach()
    feed.session.attach(lambda woken: None)
    found, result = packed(feed, Target(5, 50))
    assert found == [] and result.oversize_count == 1
    assert feed.session.give_up(feed) == ([1] if qos == 2 else [])
    assert feed.session.in_flight == {} and feed.session.outstanding == qos - 1
    assert committed(feed.session) == {"mqtt": 1}


@pytest.mark.parametrize("target", [V3, V5, Target(5, 1 << 28, OutgoingAliases(4))], ids=["3", "5", "alias"])
def test_what_was_perhaps_sent_before_has_dup_at_qos_1(log: Log, target: Target) -> None:
    feed = subscribed(log, Subscription("t", 2))
    blocks = [b"" if number % 4 else PROPERTY for number in range(8)]
    log.append_batch(
        WriteBatch(
            [block + b"%d" % number for number, block in enumerate(blocks)],
            log.topic_id("t"),
            flags=[number % 3 << 1 for number in range(8)],
            header_lengths=[len(block) for block in blocks],
        ),
        ack="written",
    )
    feed.sent_below = 6
    assert feed.reader is not None
    result = pack(feed, feed.reader.read(), target, PassingTime())
    found = [packet for packet in parse(result.data, target.level)[0] if isinstance(packet, Publish)]
    assert [one.payload for one in found] == [b"%d" % number for number in range(8)]
    assert [int(one.payload) for one in found if one.duplicate] == [1, 4]
    assert feed.window.seen == 8


def test_packing_of_no_records_returns_no_bytes(log: Log) -> None:
    feed = subscribed(log, Subscription("t", 1))
    assert feed.reader is not None
    assert pack(feed, feed.reader.read(), V3, PassingTime()) == Packed(b"", 0, 0, 0)


@pytest.mark.parametrize("target", [V3, V5, Target(5, 60)], ids=["3", "5", "5 with small packets"])
@pytest.mark.parametrize(
    "subscriptions",
    [
        (Subscription("#", 2),),
        (Subscription("a", 1, identifier=7), Subscription("b", 0, retain_as_published=True)),
        (Subscription("a", 1, no_local=True), Subscription("b", 1)),
    ],
    ids=["all", "some", "no local"],
)
def test_records_are_packed_the_same_in_bulk_and_one_by_one(
    log: Log, target: Target, subscriptions: tuple[Subscription, ...]
) -> None:
    """The run may end at any record; the rest is packed one by one, with the same result."""
    feeds = [subscribed(log, *subscriptions) for _ in range(2)]
    numbers = range(60)
    log.append_batch(
        WriteBatch(
            [b"x" * (80 if number == 40 else number % 9) for number in numbers],
            [log.topic_id("abc"[number % 3]) for number in numbers],
            flags=[number % 3 << 1 | (number % 2 == 0) for number in numbers],
        ),
        ack="written",
    )
    outcomes = []
    for feed, one_by_one in zip(feeds, (False, True), strict=True):
        assert feed.reader is not None
        batch = feed.reader.read()
        if one_by_one:
            result = packing._pack_each(feed, batch, target, PassingTime(), 0, None)
        else:
            result = pack(feed, batch, target, PassingTime())
        in_flight = {packet_id: (one.offset, one.qos) for packet_id, one in feed.session.in_flight.items()}
        outcomes.append((result, in_flight, feed.session.outstanding, feed.session.packet_ids.last))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0].delivered_count >= 30


def test_single_record_is_packed_alone_when_its_topic_is_known(log: Log, tried: str) -> None:
    feed = subscribed(log, Subscription("t", 2))
    for number in range(3):
        append(log, "t", b"%d" % number, qos=number)
        found, total = packed(feed)
        assert [(one.payload, one.qos) for one in found] == [(b"%d" % number, number)]
        assert total.delivered_count == 1
    assert singles == ([-1, 1] if tried else []), "QoS 2 is for the usual way"
    assert [(entry.offset, entry.qos) for entry in feed.session.in_flight.values()] == [(1, 1), (2, 2)]
    assert (feed.window.seen, feed.session.outstanding, feed.session.packet_ids.last) == (3, 2, 2)


@pytest.mark.parametrize(
    "why", ["headers", "too large", "unknown topic", "several", "missed at QoS 0", "on disk"]
)
def test_single_delivery_refuses_special_records_without_side_effects(log: Log, why: str) -> None:
    feed = subscribed(log, Subscription("#", 1))
    append(log, "t", b"first", qos=0)
    packed(feed)
    target = Target(4, 20) if why == "too large" else V3
    if why == "headers":
        append(log, "t", block=encode_headers([Header(HeaderKind.USER, "a", b"b")]))
    elif why == "several":
        log.append_batch(WriteBatch([b"1", b"2"], log.topic_id("t"), flags=2), ack="written")
    else:
        append(log, "new" if why == "unknown topic" else "t", b"x" * 20, qos=int(why != "missed at QoS 0"))
    if why == "missed at QoS 0":
        feed.qos0_from = 99
    before = (feed.window.seen, feed.session.outstanding, feed.session.packet_ids.last)
    if why == "on disk":
        assert feed.reader is not None
        feed.reader.seek(0)
        log._tail._budget.lend(1 << 40)  # all the memory there is
    single = single_of(feed)
    for sender in SENDERS:
        assert single is None or sent_alone(feed, single, target, sender) is None
    assert (single is None) == (why in ("several", "on disk"))
    assert (feed.window.seen, feed.session.outstanding, feed.session.packet_ids.last) == before


def test_subscribers_of_the_same_bytes_share_their_packets(log: Log) -> None:
    source, reads = LogSource.of(log), SharedReads()

    def feed_of(subscription: Subscription) -> Feed:
        session = Session("c")
        session.subscribe(subscription, [source])
        session.attach(lambda woken: None)
        return session.feeds["mqtt"]

    alike = [feed_of(Subscription("t", 0)) for _ in range(4)]
    retaining = feed_of(Subscription("t", 0, retain_as_published=True))
    acknowledging, every_topic = feed_of(Subscription("t", 1)), feed_of(Subscription("#", 0))
    late = feed_of(Subscription("t", 0))
    late.qos0_from = 5
    feeds = [*alike, retaining, acknowledging, every_topic, late]
    log.append_batch(
        WriteBatch([b"%d" % number for number in range(20)], log.topic_id("t"), flags=1), ack="written"
    )
    log.append_batch(WriteBatch([b"x"] * 20, log.topic_id("u")), ack="written")

    def packed(feed: Feed, packet_bytes: int = 1 << 28) -> Packed:
        assert feed.reader is not None
        feed.reader.seek(0)
        batch = reads.read(feed.reader, max_records=100, max_bytes=1 << 20, max_scan=100)
        assert feed.reader.offset == batch.next_offset
        return pack(feed, batch, Target(4, packet_bytes), PassingTime(), reads.last)

    for feed in feeds:
        assert feed.reader is not None  # how the topic is sent is known from now on
        pack(feed, feed.reader.read(), Target(4, 1 << 28), PassingTime())
    results = [packed(feed) for feed in feeds]
    of_all = results[1].data
    assert [one.data is of_all for one in results[1:4]] == [True, True, True]
    assert results[0].data == of_all and results[0].delivered_count == 20  # it did not know of the others
    assert results[4].data != of_all and len(results[4].data) == len(of_all)
    assert results[5].delivered_count == 20 and not acknowledging.session.in_flight
    assert results[6].delivered_count == 40
    assert results[7].delivered_count == 15
    assert packed(alike[0], 50).data == of_all
    assert packed(alike[1], 50).data is not of_all
    log.append_batch(WriteBatch([b"y"] * 20, log.topic_id("t")), ack="written")
    assert packed(alike[2]).delivered_count == 40
    assert packed(alike[3]).data.startswith(of_all)
