"""One connection, fed whole, byte by byte, in halves and with a tail.

The invariant of the fuzz: for any bytes in any pieces, only MalformedPacket and ProtocolViolation escape from
`receive_data`, the events are the same, and the buffered bytes never exceed the packet size limit.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtt_front.codec import packets
from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.packets import Connect, Packet, PacketType, Publish
from mqtt_front.codec.properties import Properties
from mqtt_front.errors import MalformedPacket, MqttError, ProtocolViolation
from mqtt_front.protocol.connection import Connection, Inbound, State
from mqtt_front.protocol.events import Acknowledgements, Event, Pings, Publishes
from mqtt_front.reasons import Reason
from tests.support.mqtt_packets import CUTS, any_packet, byte_by_byte, in_halves

ANYTHING = Inbound(packet_bytes=1 << 20, topic_alias_maximum=65_535)


def feed(connection: Connection, pieces: object) -> tuple[list[Event], MqttError | None]:
    """All events of the pieces, and the error that ended it."""
    events: list[Event] = []
    try:
        for piece in pieces:  # type: ignore[attr-defined]
            for event in connection.receive_data(piece):
                events.append(event)
            assert len(connection._partial) <= connection.inbound.packet_bytes + 5
    except (MalformedPacket, ProtocolViolation) as error:
        assert connection.state is State.ENDED
        return events, error
    return events, None


def flat(events: list[Event]) -> list[object]:
    """Events with runs taken apart, so that those of differently cut data can be compared."""
    rows: list[object] = []
    for event in events:
        if isinstance(event, Publishes):
            rows += event.rows()
        elif isinstance(event, Acknowledgements):
            rows += [(event.kind, packet_id, event.reason) for packet_id in event.packet_ids]
        elif isinstance(event, Pings):
            rows += [packets.Pingreq()] * event.ping_count
        else:
            rows.append(event)
    return rows


def encoded(*sent: Packet, level: int = 4) -> bytes:
    return b"".join(encode_packet(packet, level) for packet in sent)


def opened(level: int = 4, inbound: Inbound = ANYTHING) -> Connection:
    connection = Connection(inbound)
    list(connection.receive_data(encode_packet(Connect("c", level), level)))
    return connection


CONVERSATION = (
    Publish("a", b"1"),
    Publish("b", b"2", 1, packet_id=1),
    packets.Puback(5),
    packets.Puback(6),
    packets.Subscribe(7, (packets.Request("a/#", 1),)),
    Publish("c", b"x" * 300, 2, packet_id=2),
    packets.Pubrel(2),
    packets.Pingreq(),
    packets.Unsubscribe(8, ("a/#",)),
)


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS.keys())
@pytest.mark.parametrize("level", [3, 4, 5])
def test_conversation_gives_the_same_events_in_any_pieces(level: int, cut: object) -> None:
    data = encoded(Connect("c", level), *CONVERSATION, packets.Disconnect(), level=level)
    connection = Connection(ANYTHING)
    events, error = feed(connection, cut(data))  # type: ignore[operator]
    assert error is None
    rows = flat(events)
    assert rows[0] == Connect("c", level)
    assert rows[1:4] == [
        (0x30, b"a", b"", b"1", b""),
        (0x32, b"b", b"", b"2", b"\x40\2\0\1"),
        (PacketType.PUBACK, 5, 0),
    ]
    assert rows[-1] == packets.Disconnect()
    assert len(rows) == len(CONVERSATION) + 2
    assert connection.state is State.ENDED


def test_packets_received_together_become_runs() -> None:
    events, _ = feed(opened(), [encoded(*[Publish("a", b"x", 1, packet_id=n) for n in range(1, 51)])])
    assert [len(event.first_bytes) for event in events if isinstance(event, Publishes)] == [50]


FIRST_PACKETS = {
    "PUBLISH": (encoded(Publish("a")), "not CONNECT"),
    "PINGREQ": (encoded(packets.Pingreq()), "not CONNECT"),
    "CONNECT with flags": (b"\x11", "not CONNECT"),
    "TLS": (b"\x16\x03\x01\x02\x00", "TLS"),
    "HTTP": (b"GET / HTTP/1.1\r\n", "HTTP"),
    "nonsense": (b"\xff\xff", "0xFF"),
}


@pytest.mark.parametrize(("data", "said"), FIRST_PACKETS.values(), ids=FIRST_PACKETS.keys())
def test_first_packet_other_than_connect_is_refused_with_the_protocol_recognised(
    data: bytes, said: str
) -> None:
    events, error = feed(Connection(ANYTHING), [data])
    assert events == []
    assert said in str(error)


PUBLISH_5 = Publish("t", b"x", 1, packet_id=9)
AFTER_CONNECT = {
    "second CONNECT on one connection": (5, encoded(Connect("c", 5), level=5), Reason.PROTOCOL_ERROR),
    "CONNACK": (5, encoded(packets.Connack(), level=5), Reason.PROTOCOL_ERROR),
    "SUBACK": (4, encoded(packets.Suback(1, (0,))), Reason.PROTOCOL_ERROR),
    "PINGRESP": (4, encoded(packets.Pingresp()), Reason.PROTOCOL_ERROR),
    "a length of five bytes": (4, b"\x30\xff\xff\xff\xff\x01", Reason.MALFORMED_PACKET),
    "a length longer than necessary": (4, b"\xc0\x80\x00", Reason.MALFORMED_PACKET),
    "subscription identifier": (
        5, encoded(Publish("t", properties=Properties(subscription_identifiers=(1,))), level=5), Reason.PROTOCOL_ERROR,
    ),
    "an alias never set": (5, bytes.fromhex("30 06 0000 03 23 0001"), Reason.PROTOCOL_ERROR),
    "neither topic nor alias": (5, bytes.fromhex("30 04 0000 00 78"), Reason.MALFORMED_PACKET),
    "alias 0": (5, bytes.fromhex("30 08 0001 74 03 23 0000 78"), Reason.TOPIC_ALIAS_INVALID),
    "DISCONNECT with a server reference": (
        5, encoded(packets.Disconnect(0, Properties(server_reference="x")), level=5), Reason.PROTOCOL_ERROR,
    ),
}  # fmt: skip


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS.keys())
@pytest.mark.parametrize(("level", "data", "reason"), AFTER_CONNECT.values(), ids=AFTER_CONNECT.keys())
def test_protocol_violation_ends_the_connection_after_earlier_packets(
    level: int, data: bytes, reason: Reason, cut: object
) -> None:
    connection = opened(level)
    good = encoded(PUBLISH_5, level=level)
    events, error = feed(connection, cut(good + data + good))  # type: ignore[operator]
    assert error is not None and error.reason is reason
    assert flat(events) == [(0x32, b"t", b"", b"x", b"\x40\x02\0\x09")]
    assert list(connection.receive_data(good)) == [], "everything after an error is ignored"


def test_packets_after_disconnect_are_ignored() -> None:
    events, error = feed(opened(), [encoded(packets.Disconnect()) + b"\xff\xff\xff"])
    assert (events, error) == ([packets.Disconnect()], None)


def test_connection_ended_between_two_events_gives_no_more_events() -> None:
    connection = opened()
    seen = []
    ask = packets.Subscribe(1, (packets.Request("a"),))
    for event in connection.receive_data(encoded(ask, ask)):
        seen.append(event)
        connection.end()
    assert seen == [ask]


def test_consecutive_pings_are_one_event() -> None:
    ping = encoded(packets.Pingreq())
    assert feed(opened(), [ping * 1000 + encoded(packets.Puback(1)) + ping]) == (
        [Pings(1000), Acknowledgements(PacketType.PUBACK, [1]), Pings(1)], None
    )  # fmt: skip
    events, error = feed(opened(), [ping * 2 + b"\xc0\x01x"])
    assert events == [Pings(2)] and error is not None and error.reason is Reason.MALFORMED_PACKET


@pytest.mark.parametrize("level", [4, 5])
def test_packets_before_connack_have_a_separate_limit(level: int) -> None:
    inbound = Inbound(packet_bytes=1000, connect_bytes=100)
    connection = Connection(inbound)
    _, error = feed(connection, [encoded(Connect("c" * 100, level))[:20]])
    assert error is not None and (error.reason, error.limit) == (Reason.PACKET_TOO_LARGE, "connect_bytes")
    assert connection.saw_connect and connection.level == level, (
        "the rest of it need not come to know whom to answer"
    )
    connection = opened(level, inbound)
    assert feed(connection, [encoded(Publish("t", bytes(900)), level=level)])[1] is None
    _, error = feed(connection, [encoded(Publish("t", bytes(1000)), level=level)])
    assert error is not None and error.limit == "packet_bytes"


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS.keys())
def test_held_connection_gives_no_events_and_loses_no_bytes(cut: object) -> None:
    connection = Connection(ANYTHING)
    seen: list[Event] = []
    for piece in cut(encoded(Connect("c", 4), *CONVERSATION)):  # type: ignore[operator]
        for event in connection.receive_data(piece):
            seen.append(event)
            connection.hold()
    assert seen == [Connect("c", 4)]
    assert len(flat(list(connection.go_on()))) == len(CONVERSATION)
    assert len(connection._partial) == 0


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS.keys())
@pytest.mark.parametrize("size", [100, 101])
def test_packet_over_the_limit_is_refused_before_it_is_buffered(size: int, cut: object) -> None:
    data = encoded(Publish("a", b"x" * (size - 5)))
    assert len(data) == size
    connection = opened(inbound=Inbound(packet_bytes=100))
    events, error = feed(connection, cut(data))  # type: ignore[operator]
    if size == 100:
        assert error is None and len(flat(events)) == 1
    else:
        assert error is not None and error.reason is Reason.PACKET_TOO_LARGE
        assert events == []
    assert len(connection._partial) <= 100


def test_large_packet_in_many_pieces_is_joined_once() -> None:
    connection = opened()
    data = encoded(Publish("a", b"x" * 500_000))
    assert (
        sum(len(list(connection.receive_data(data[at : at + 1000]))) for at in range(0, len(data), 1000)) == 1
    )
    assert len(connection._partial) == 0


def test_receive_maximum_counts_unacknowledged_publishes() -> None:
    inbound = Inbound(receive_maximum=3)
    sent = [Publish("t", b"%d" % n, n % 2, packet_id=n if n % 2 else 0) for n in range(1, 9)]
    events, error = feed(opened(5, inbound), [encoded(*sent, level=5)])
    assert error is not None and error.reason is Reason.RECEIVE_MAXIMUM_EXCEEDED
    assert [row[3] for row in flat(events)] == [b"1", b"2", b"3", b"4", b"5", b"6"]  # type: ignore[index]

    connection = opened(5, inbound)
    for sent_at_once in (sent[:6], sent[6:]):
        _, error = feed(connection, [encoded(*sent_at_once, level=5)])
        assert error is None
        connection.unacknowledged = 0
    connection = opened(4, inbound)
    assert feed(connection, [encoded(*sent)])[1] is None, "MQTT 3 has no receive maximum"


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS.keys())
def test_aliases_are_learned_used_and_replaced(cut: object) -> None:
    def publish(topic: str, alias: int) -> Publish:
        return Publish(topic, b"x", properties=Properties(topic_alias=alias))

    data = encoded(publish("a", 1), publish("b", 2), publish("", 1), publish("c", 1), publish("", 1), level=5)
    events, error = feed(opened(5), cut(data))  # type: ignore[operator]
    assert error is None
    assert [row[1] for row in flat(events)] == [b"a", b"b", b"a", b"c", b"c"]  # type: ignore[index]
    assert {row[2] for row in flat(events)} == {b""}, "an alias is not stored"  # type: ignore[index]


def test_an_alias_over_the_maximum_is_refused() -> None:
    data = encoded(Publish("a", properties=Properties(topic_alias=3)), level=5)
    _, error = feed(opened(5, Inbound(topic_alias_maximum=2)), [data])
    assert error is not None and error.reason is Reason.TOPIC_ALIAS_INVALID


def test_properties_become_the_header_block_in_front_of_the_payload() -> None:
    properties = Properties(content_type="x", user_properties=(("a", "b"),))
    sent = [Publish("t", b"plain"), Publish("t", b"rich", properties=properties), Publish("t", b"plain")]
    (event,), error = feed(opened(5), [encoded(*sent, level=5)])
    assert error is None and isinstance(event, Publishes)
    assert isinstance(event.header_lengths, list)
    first, length, last = event.header_lengths
    assert (first, last) == (0, 0) and length > 0
    assert [row.payload for row in event.rows()] == [b"plain", b"rich", b"plain"]


@pytest.mark.slow
@pytest.mark.parametrize("level", [4, 5])
@given(st.data())
def test_changed_packets_give_the_same_events_in_any_pieces(level: int, data: st.DataObject) -> None:
    sent = data.draw(st.lists(any_packet(level), max_size=4))
    stream = bytearray(encoded(Connect("c", level), *sent, level=level))
    for _ in range(data.draw(st.integers(0, 2))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    inbound = Inbound(
        packet_bytes=data.draw(st.sampled_from([64, 1 << 20])), receive_maximum=2, topic_alias_maximum=9
    )
    outcomes = []
    for cut in (lambda whole: [whole], byte_by_byte, in_halves):
        events, error = feed(Connection(inbound), cut(bytes(stream)))
        outcomes.append((flat(events), error and (type(error), error.reason)))
    assert outcomes[0] == outcomes[1] == outcomes[2]


@pytest.mark.slow
@given(st.lists(st.binary(max_size=30), max_size=5))
def test_random_bytes_give_events_or_a_protocol_error(pieces: list[bytes]) -> None:
    feed(Connection(Inbound(packet_bytes=50)), pieces)
    feed(opened(5, Inbound(packet_bytes=50)), pieces)


def test_incomplete_packet_is_moved_before_the_following_bytes() -> None:
    connection, packet, memory = opened(), encoded(Publish("t", b"payload")), bytearray(64)
    assert connection.front(memory, 32) == 32
    assert feed(connection, [packet[:9]]) == ([], None)
    assert connection.front(memory, 32) == 23
    assert memory[23:32] == packet[:9] and len(connection._partial) == 0
    events, fault = feed(connection, [bytes(memory[23:32]) + packet[9:]])
    assert fault is None and len(events) == 1


def test_incomplete_packet_is_buffered_without_room_in_front() -> None:
    connection, packet, memory = opened(), encoded(Publish("t", b"x" * 100)), bytearray(64)
    feed(connection, [packet[:40]])
    assert connection.front(memory, 32) == -1 and connection.front(memory, 64) == -1
    assert len(connection._partial) == 40


def test_fast_path_takes_nothing_from_a_connection_that_is_not_open_or_held() -> None:
    memory, connection = bytearray(64), opened()
    assert Connection(ANYTHING).front(memory, 32) == -1
    places = [connection.front(memory, 32)]
    connection.hold()
    places.append(connection.front(memory, 32))
    list(connection.go_on())
    places.append(connection.front(memory, 32))
    connection.end()
    assert [*places, connection.front(memory, 32)] == [32, -1, 32, -1]


def test_room_for_publishes_is_the_rest_of_the_receive_maximum() -> None:
    connection = opened(5, Inbound(receive_maximum=10))
    feed(connection, [encoded(Publish("t", b"", 1, packet_id=1), Publish("t", b"", 2, packet_id=2), level=5)])
    connection.unreleased.add(9)
    assert connection.room == 7
    assert opened(4, Inbound(receive_maximum=10)).room > 65_535
