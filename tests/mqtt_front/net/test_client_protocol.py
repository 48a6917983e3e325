"""One socket: bytes in, packets out, and every way it can end."""

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from mqtt_front.codec import packets
from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.packets import Connack, Connect, Disconnect
from mqtt_front.codec.properties import Properties
from mqtt_front.errors import MalformedPacket
from mqtt_front.ingest.routing import Router
from mqtt_front.metrics import Counts
from mqtt_front.net.client_protocol import FRONT_BYTES, Link
from mqtt_front.net.poller import Poller
from mqtt_front.protocol.connection import Inbound
from mqtt_front.protocol.events import Event, Publishes
from mqtt_front.reasons import Reason
from mqtt_front.sessions.session import Target
from mqtt_front.settings import MqttSettings
from tests.support.mqtt_clients import parse
from timestone.store import Store


class Transport:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.reading = True
        self.ended: str | None = None
        self.high: int | None = None
        self.is_reset = False

    def write(self, data: bytes) -> None:
        self.written += data

    def write_eof(self) -> None:
        if self.is_reset:
            raise OSError(107, "Transport endpoint is not connected")
        self.ended = "half-closed"

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def is_closing(self) -> bool:
        return self.ended is not None

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("192.0.2.1", 1234)


class Broker:
    """What a link needs of a broker: it keeps what it is told."""

    def __init__(self) -> None:
        self.inbound = Inbound()
        self.settings = MqttSettings(server_reference="other:1883")
        self.counts = Counts()
        self.over: Counter[str] = Counter()
        self.memory = bytearray(FRONT_BYTES + 65_536)
        self.buffer = memoryview(self.memory)[FRONT_BYTES:]
        self.deadlines = self
        self.ingest = self
        self.unsent = self
        self.delivery = self
        self.poller: Poller | None = None
        self.now = 17
        self.events: list[object] = []
        self.told: list[str] = []
        self.router: Router | None = None

    def new_rates(self) -> None:
        """No limit."""

    def watch(self, link: Link) -> None:
        self.told.append("watched")

    def arrived(self, link: Link) -> None:
        self.told.append("arrived")

    def departed(self, link: Link) -> None:
        self.told.append("departed")

    def closing(self, link: Link, *, linger: bool) -> bool:
        self.told.append("closing")
        return linger

    def gone(self, link: Link, how: str, level: int = logging.INFO) -> None:
        self.told.append(f"gone: {how}")

    def stopped(self, link: Link) -> None:
        self.told.append("stopped")

    def went_on(self, link: Link) -> None:
        self.told.append("went on")

    def resume(self, session: object) -> None:
        self.told.append("resume")

    def served(self, link: Link) -> None:
        self.told.append("served")
        link.hold()

    def publish(self, link: Link, run: Publishes) -> None:
        self.events.append(run)

    def handle(self, link: Link, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, packets.Subscribe):
            raise MalformedPacket("not today")


class Linked:
    def __init__(self, level: int = 4) -> None:
        self.level = level
        self.broker, self.transport = Broker(), Transport()
        self.link = Link(self.broker)  # type: ignore[arg-type]
        self.link.connection_made(self.transport)

    def receive(self, *sent: packets.Packet) -> None:
        data = b"".join(encode_packet(packet, self.level) for packet in sent)
        self.link.get_buffer(-1)[: len(data)] = data
        self.link.buffer_updated(len(data))

    def connected(self) -> "Linked":
        self.receive(Connect("c", self.level))
        self.link.client_id, self.link.connected = "c", True
        return self

    @property
    def written(self) -> list[packets.Packet]:
        return parse(self.transport.written, self.level)[0]


@pytest.fixture(params=[4, 5])
def linked(request: pytest.FixtureRequest) -> Linked:
    return Linked(request.param).connected()


def test_what_arrives_reaches_the_broker_and_the_shared_buffer_can_be_used_again(linked: Linked) -> None:
    linked.receive(packets.Publish("t", b"payload"))
    linked.broker.buffer[:] = bytes(len(linked.broker.buffer))
    assert linked.link.last_seen == 17
    run = linked.broker.events[-1]
    assert isinstance(run, Publishes) and run.data == b"payload"


def test_a_link_is_called_by_its_address_and_client_id() -> None:
    linked = Linked()
    assert repr(linked.link) == "192.0.2.1:1234"
    linked.link.client_id = "evil\nid" + "x" * 1000
    assert repr(linked.link).startswith("client 'evil\\nidxxx") and len(repr(linked.link)) < 150


def test_an_error_of_the_protocol_ends_the_link_with_its_reason(linked: Linked) -> None:
    linked.receive(packets.Subscribe(1, (packets.Request("a"),)), packets.Pingreq())
    told = Properties(reason_string="not today")
    assert linked.written == ([Disconnect(Reason.MALFORMED_PACKET, told)] if linked.level == 5 else [])
    assert linked.transport.ended == ("half-closed" if linked.level == 5 else "closed")
    assert linked.broker.told[1:] == ["gone: not today (MALFORMED_PACKET)", "closing"]
    assert linked.broker.events[-1] != packets.Pingreq(), "nothing after it is looked at"


def test_nothing_is_sent_before_a_connect_was_understood() -> None:
    linked = Linked()
    linked.receive(packets.Pingreq())
    assert linked.transport.written == b"" and linked.transport.ended == "closed"


@pytest.mark.parametrize("level", [4, 5])
def test_a_refused_connect_gets_a_connack(level: int) -> None:
    linked = Linked(level)
    linked.receive(Connect("c", level))
    linked.link.end(Reason.SERVER_BUSY, "busy")
    told = Properties(reason_string="busy")
    assert linked.written == [Connack(False, 3) if level == 4 else Connack(False, Reason.SERVER_BUSY, told)]
    assert linked.transport.ended == "half-closed", (
        "it may be about to send something, and has to read this first"
    )


def test_a_client_that_we_do_not_listen_to_because_the_disk_is_slow_is_not_silent(linked: Linked) -> None:
    linked.link.hold()
    linked.link.overdue()
    assert linked.broker.told[-1] == "watched" and linked.transport.ended is None
    assert linked.link.last_seen == linked.broker.now
    linked.link.release(0)
    linked.link.overdue()
    assert linked.transport.ended is not None


def test_nor_is_one_that_waits_for_what_is_looked_up_on_the_disk(linked: Linked) -> None:
    linked.link.wait("answer about where its replay begins")
    linked.link.overdue()
    assert linked.broker.told[-1] == "watched" and linked.transport.ended is None
    linked.link.go_on(lambda: None)
    linked.link.overdue()
    assert linked.transport.ended is not None


def test_what_a_refused_client_is_told_depends_on_the_reason() -> None:
    told = {}
    for reason in (
        Reason.NOT_AUTHORIZED,
        Reason.SERVER_MOVED,
        Reason.KEEP_ALIVE_TIMEOUT,
        Reason.SERVER_SHUTTING_DOWN,
    ):
        linked = Linked(5)
        linked.receive(Connect("c", 5))
        linked.link.end(reason, "why")
        (answer,) = linked.written
        assert isinstance(answer, Connack)
        told[reason] = (answer.reason, answer.properties)
    why = Properties(reason_string="why")
    assert told == {
        Reason.NOT_AUTHORIZED: (0x87, Properties()),
        Reason.SERVER_MOVED: (0x9D, Properties(reason_string="why", server_reference="other:1883")),
        Reason.KEEP_ALIVE_TIMEOUT: (0x80, why),  # which CONNACK has no word for
        Reason.SERVER_SHUTTING_DOWN: (0x88, why),
    }


def test_the_reason_is_not_explained_to_a_client_that_takes_no_packet_of_that_size() -> None:
    linked = Linked(5).connected()
    linked.link.target = Target(5, 10)
    linked.link.end(Reason.PROTOCOL_ERROR, "a long story")
    assert linked.written == [Disconnect(Reason.PROTOCOL_ERROR)]


def test_an_answer_that_is_too_large_for_the_client_is_not_sent_and_ends_the_connection() -> None:
    linked = Linked(5).connected()
    linked.link.target = Target(5, 10)
    linked.link.send(packets.Suback(7, (0,) * 5))
    linked.link.send(packets.Suback(7, (0,) * 6))
    assert linked.written == [packets.Suback(7, (0,) * 5), Disconnect(Reason.PACKET_TOO_LARGE)]
    assert "gone: SUBACK has 11 bytes, and it takes 10 (PACKET_TOO_LARGE)" in linked.broker.told


def test_a_portion_is_all_that_is_read_and_then_it_is_others_turn(linked: Linked) -> None:
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


def test_a_portion_is_counted_as_well_where_a_layer_hands_it_over(linked: Linked) -> None:
    linked.link.release(10)
    linked.link.receive(encode_packet(packets.Publish("t", b"more than ten"), linked.level))
    assert linked.broker.told.count("served") == 1 and len(linked.broker.events) == 2


def test_a_client_that_asks_on_and_reads_no_answers_is_not_read_from(linked: Linked) -> None:
    limit = linked.broker.settings.unsent_bytes
    linked.link.pause_writing()
    reading = []
    steps: list[Callable[[], None]] = [
        partial(linked.link.deliver, bytes(limit)),
        partial(linked.link.deliver, b"x"),
        linked.link.hold,  # the disk has not settled its publishes, either
        linked.link.resume_writing,
        partial(linked.link.release, 0),
    ]
    for step in steps:
        step()
        reading.append(linked.transport.reading)
    assert reading == [True, False, False, False, True]
    assert linked.broker.over["unsent_bytes"] == 1


def test_a_closing_link_sends_nothing_and_reads_nothing(linked: Linked) -> None:
    linked.link.close()
    linked.link.deliver(b"more")
    linked.link.hold()
    linked.link.release(0)
    linked.link.end(Reason.SERVER_BUSY, "again")
    linked.receive(packets.Pingreq())
    assert linked.transport.written == b""
    assert linked.transport.reading
    assert linked.broker.told == ["arrived", "closing"]


def test_a_peer_that_does_not_read_what_closes_it_is_cut_off(linked: Linked) -> None:
    linked.link.close()
    linked.link.overdue()
    assert linked.transport.ended == "aborted"


def told_why() -> Linked:
    linked = Linked(5).connected()
    linked.link.hold()
    linked.link.end(Reason.RECEIVE_MAXIMUM_EXCEEDED, "too many")
    return linked


def test_what_a_client_sends_before_it_has_read_why_it_ends_is_thrown_away() -> None:
    linked = told_why()
    assert linked.transport.reading, "although nothing was read from it before"
    events = list(linked.broker.events)
    for _ in range(10):
        linked.receive(packets.Pubrel(1))
    assert linked.broker.events == events and linked.transport.ended == "half-closed"
    assert linked.link.eof_received() is False


def test_a_client_that_has_been_told_cannot_stay_for_long_nor_send_much() -> None:
    late, loud, reset = told_why(), told_why(), Linked(5).connected()
    late.link.overdue()
    for _ in range(17):
        loud.link.buffer_updated(len(loud.broker.buffer))
    reset.transport.is_reset = True
    reset.link.end(Reason.RECEIVE_MAXIMUM_EXCEEDED, "too many")
    assert [each.transport.ended for each in (late, loud, reset)] == ["aborted"] * 3


def test_silence_ends_it_before_and_after_connect(linked: Linked) -> None:
    fresh = Linked()
    fresh.link.overdue()
    assert "no CONNECT" in fresh.broker.told[1]
    linked.link.overdue()
    assert "keep alive" in linked.broker.told[1]
    told = Properties(reason_string="nothing received within 1.5 times the keep alive")
    assert linked.written == ([Disconnect(Reason.KEEP_ALIVE_TIMEOUT, told)] if linked.level == 5 else [])


def test_the_broker_hears_of_a_lost_connection_once_and_of_its_socket(linked: Linked) -> None:
    linked.link.connection_lost(ConnectionResetError("reset by peer"))
    assert linked.broker.told[1:] == ["gone: lost: reset by peer", "departed"]
    linked.link.deliver(b"x")
    assert linked.transport.written == b""


def test_why_a_link_ends_is_said_once_however_its_socket_is_lost() -> None:
    """A client that did not trust our certificate had a second line in the log when it reset the connection."""
    linked = Linked()
    linked.link.turn_away("it does not know the CA of this server's certificate")
    linked.link.connection_lost(ConnectionResetError("reset by peer"))
    said = [told for told in linked.broker.told if told.startswith("gone")]
    assert said == ["gone: it does not know the CA of this server's certificate"]


def test_a_full_socket_is_told_to_the_delivery_when_it_has_drained(linked: Linked) -> None:
    linked.link.session = object()  # type: ignore[assignment]
    linked.link.pause_writing()
    writable = [linked.link.writable]
    linked.link.resume_writing()
    assert [*writable, linked.link.writable] == [False, True]
    assert linked.broker.told[-1] == "resume"
    assert linked.transport.high == linked.broker.settings.unsent_bytes


def test_acknowledgements_make_room_for_more_publishes(linked: Linked) -> None:
    linked.receive(packets.Publish("t", b"", 1, packet_id=1))
    assert linked.link.connection.unacknowledged == 1
    linked.link.acknowledge(b"\x40\x02\x00\x01", 1)
    assert linked.link.connection.unacknowledged == 0
    assert linked.written == [packets.Puback(1)]


def test_a_client_brings_as_many_topics_as_it_may(store: Store) -> None:
    linked = Linked().connected()
    linked.broker.router = Router([store.log("mqtt")], [], topic_levels=9, owner_topic_count=3)
    assert linked.link.bring([b"a", b"b"])
    assert not linked.link.bring([b"c", b"d"])
    assert linked.link.bring([b"c"])
    assert not linked.link.bring([b"d"])


def test_a_publish_that_failed_ends_an_old_client(linked: Linked) -> None:
    linked.link.refuse("the disk is full")
    assert linked.transport.ended == ("half-closed" if linked.level == 5 else "closed")


def test_end_of_file_closes_the_transport(linked: Linked) -> None:
    assert linked.link.eof_received() is False
