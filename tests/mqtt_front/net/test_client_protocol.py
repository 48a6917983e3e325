"""One client connection: bytes in, packets out, and every way it can end."""

import pytest

from mqtt_front.codec import packets
from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.packets import Connack, Connect, Disconnect
from mqtt_front.codec.properties import Properties
from mqtt_front.ingest.routing import Router
from mqtt_front.protocol.events import Publishes
from mqtt_front.reasons import Reason
from mqtt_front.sessions.session import Target
from tests.support.linked_client import Linked
from timestone.store import Store


@pytest.fixture(params=[4, 5])
def linked(request: pytest.FixtureRequest) -> Linked:
    return Linked(request.param).connected()


def test_received_packets_reach_the_broker_and_free_the_shared_buffer(linked: Linked) -> None:
    linked.receive(packets.Publish("t", b"payload"))
    linked.broker.buffer[:] = bytes(len(linked.broker.buffer))
    assert linked.link.last_seen == 17
    run = linked.broker.events[-1]
    assert isinstance(run, Publishes) and run.data == b"payload"


def test_protocol_is_named_by_address_and_client_id() -> None:
    linked = Linked()
    assert repr(linked.link) == "192.0.2.1:1234"
    linked.link.client_id = "evil\nid" + "x" * 1000
    assert repr(linked.link).startswith("client 'evil\\nidxxx") and len(repr(linked.link)) < 150


def test_protocol_error_ends_the_connection_with_its_reason(linked: Linked) -> None:
    linked.receive(packets.Subscribe(1, (packets.Request("a"),)), packets.Pingreq())
    told = Properties(reason_string="not today")
    assert linked.written == ([Disconnect(Reason.MALFORMED_PACKET, told)] if linked.level == 5 else [])
    assert linked.transport.ended == ("half-closed" if linked.level == 5 else "closed")
    assert linked.broker.told[1:] == ["gone: not today (MALFORMED_PACKET)", "closing"]
    assert linked.broker.events[-1] != packets.Pingreq(), "nothing after it is looked at"


def test_no_answer_is_sent_before_a_valid_connect() -> None:
    linked = Linked()
    linked.receive(packets.Pingreq())
    assert linked.transport.written == b"" and linked.transport.ended == "closed"


@pytest.mark.parametrize("level", [4, 5])
def test_refused_connect_gets_a_connack(level: int) -> None:
    linked = Linked(level)
    linked.receive(Connect("c", level))
    linked.link.end(Reason.SERVER_BUSY, "busy")
    told = Properties(reason_string="busy")
    assert linked.written == [Connack(False, 3) if level == 4 else Connack(False, Reason.SERVER_BUSY, told)]
    assert linked.transport.ended == "half-closed", (
        "it may be about to send something, and has to read this first"
    )


def test_keep_alive_does_not_end_a_client_held_by_a_slow_disk(linked: Linked) -> None:
    linked.link.hold()
    linked.link.overdue()
    assert linked.broker.told[-1] == "watched" and linked.transport.ended is None
    assert linked.link.last_seen == linked.broker.now
    linked.link.release(0)
    linked.link.overdue()
    assert linked.transport.ended is not None


def test_keep_alive_does_not_end_a_client_that_waits_for_a_disk_lookup(linked: Linked) -> None:
    linked.link.wait("answer about where its replay begins")
    linked.link.overdue()
    assert linked.broker.told[-1] == "watched" and linked.transport.ended is None
    linked.link.go_on(lambda: None)
    linked.link.overdue()
    assert linked.transport.ended is not None


def test_answer_too_large_for_the_client_ends_the_connection() -> None:
    linked = Linked(5).connected()
    linked.link.target = Target(5, 10)
    linked.link.send(packets.Suback(7, (0,) * 5))
    linked.link.send(packets.Suback(7, (0,) * 6))
    assert linked.written == [packets.Suback(7, (0,) * 5), Disconnect(Reason.PACKET_TOO_LARGE)]
    assert "gone: SUBACK has 11 bytes, and it takes 10 (PACKET_TOO_LARGE)" in linked.broker.told


def test_read_ends_with_the_portion_of_the_turn(linked: Linked) -> None:
    linked.link.release(100)
    room = []
    for size in (60, 40):
        room.append(len(linked.link.get_buffer(-1)))
        linked.receive(
            packets.Publish("t", bytes(size - len(encode_packet(packets.Publish("t", b""), linked.level))))
        )
    assert room == [100, 40]
    assert linked.broker.told[-1] == "served" and not linked.transport.reading
    linked.link.release(0)
    assert len(linked.link.get_buffer(-1)) == len(linked.broker.buffer) and linked.transport.reading


def test_portion_counts_bytes_from_a_stream_adapter(linked: Linked) -> None:
    linked.link.release(10)
    linked.link.receive(encode_packet(packets.Publish("t", b"more than ten"), linked.level))
    assert linked.broker.told.count("served") == 1 and len(linked.broker.events) == 2


def test_silent_client_is_ended_before_and_after_connect(linked: Linked) -> None:
    fresh = Linked()
    fresh.link.overdue()
    assert "no CONNECT" in fresh.broker.told[1]
    linked.link.overdue()
    assert "keep alive" in linked.broker.told[1]
    told = Properties(reason_string="nothing received within 1.5 times the keep alive")
    assert linked.written == ([Disconnect(Reason.KEEP_ALIVE_TIMEOUT, told)] if linked.level == 5 else [])


def test_broker_is_informed_once_of_a_lost_connection(linked: Linked) -> None:
    linked.link.connection_lost(ConnectionResetError("reset by peer"))
    assert linked.broker.told[1:] == ["gone: lost: reset by peer", "departed"]
    linked.link.deliver(b"x")
    assert linked.transport.written == b""


def test_end_of_a_connection_is_logged_once_for_every_cause() -> None:
    """A client that did not trust our certificate had a second line in the log when it reset the connection."""
    linked = Linked()
    linked.link.turn_away("it does not know the CA of this server's certificate")
    linked.link.connection_lost(ConnectionResetError("reset by peer"))
    said = [told for told in linked.broker.told if told.startswith("gone")]
    assert said == ["gone: it does not know the CA of this server's certificate"]


def test_delivery_continues_when_a_full_socket_has_drained(linked: Linked) -> None:
    linked.link.session = object()  # type: ignore[assignment]
    linked.link.pause_writing()
    writable = [linked.link.writable]
    linked.link.resume_writing()
    assert [*writable, linked.link.writable] == [False, True]
    assert linked.broker.told[-1] == "resume"
    assert linked.transport.high == linked.broker.settings.unsent_bytes


def test_acknowledgements_free_the_receive_maximum(linked: Linked) -> None:
    linked.receive(packets.Publish("t", b"", 1, packet_id=1))
    assert linked.link.connection.unacknowledged == 1
    linked.link.acknowledge(b"\x40\x02\x00\x01", 1)
    assert linked.link.connection.unacknowledged == 0
    assert linked.written == [packets.Puback(1)]


def test_client_adds_topics_up_to_its_limit(store: Store) -> None:
    linked = Linked().connected()
    linked.broker.router = Router([store.log("mqtt")], [], topic_levels=9, owner_topic_count=3)
    assert linked.link.bring([b"a", b"b"])
    assert not linked.link.bring([b"c", b"d"])
    assert linked.link.bring([b"c"])
    assert not linked.link.bring([b"d"])


def test_failed_publish_ends_an_mqtt_3_client(linked: Linked) -> None:
    linked.link.refuse("the disk is full")
    assert linked.transport.ended == ("half-closed" if linked.level == 5 else "closed")
