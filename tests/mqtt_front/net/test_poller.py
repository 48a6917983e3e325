"""Sockets read by the poller: a client sees the same as with a transport, for any input and any end of a socket."""

import contextlib
import ctypes
import gc
import random
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

import timestone
from mqtt_front.codec import packets
from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.packets import Puback, Publish
from mqtt_front.codec.properties import Properties
from mqtt_front.kernel import loops
from mqtt_front.kernel.publish_fast_path import PublishColumns
from mqtt_front.net import client_protocol as link_module
from mqtt_front.net.client_protocol import FRONT_BYTES
from mqtt_front.net.client_socket import Counts
from mqtt_front.net.poller import Poller
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import mqtt_server
from tests.support.waiting import TIMEOUT_S, wait_for

needs_kernel = pytest.mark.skipif(loops.Sockets is None, reason="the compiled kernel or epoll is not there")
READERS = [pytest.param("poller", marks=needs_kernel), "transports"]
PIECE_BYTES = 4096
MODEST_BYTES = 1000
PUBLISH = encode_packet(Publish("t", b"payload", 1, packet_id=7), 4)
PLAIN = Publish("t", b"payload", 1, packet_id=7)
MUCH: list[Publish | bytes] = [PLAIN] * 2000
"""So much that the next read releases the interpreter lock."""
TURN = (5, 1 << 20)


@pytest.fixture(params=READERS)
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The reader of the front's sockets."""
    if request.param == "transports":
        monkeypatch.setattr(loops, "Sockets", None)
    return str(request.param)


# The whole front, read either way.


def script(level: int) -> list[Publish]:
    """Return publishes of all kinds: plain ones between others, so that each has a plain one before and behind it."""
    found: list[Publish] = []
    aliased = Properties(topic_alias=1) if level == 5 else Properties()
    for number in range(120):
        qos, kind = number % 3 % 2, number % 10
        topic = f"t/{number % 4}" if kind else f"new/{number}"
        packet = Publish(
            topic, b"%d " % number + b"x" * (number % 7 * 50), qos, packet_id=number + 1 if qos else 0
        )
        if kind == 3:
            packet = Publish(packet.topic, packet.payload, 1, packet_id=number + 1, retain=True)
        elif kind == 6:
            packet = Publish(packet.topic, packet.payload, 2, packet_id=number + 1)
        elif kind == 8:
            packet = Publish(packet.topic, packet.payload, 1, packet_id=number + 1, properties=aliased)
        found.append(packet)
    return found


def pieces(data: bytes, how: str) -> Iterator[bytes]:
    """The same bytes, as they may come off a wire."""
    dice = random.Random(17)
    cuts = {
        "whole": [],
        "byte by byte": list(range(1, len(data))),
        "with a tail": sorted(dice.sample(range(1, len(data)), 40)),
    }[how]
    for start, end in pairwise([0, *cuts, len(data)]):
        yield data[start:end]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["whole", "byte by byte", "with a tail"])
@pytest.mark.parametrize("level", [4, 5])
def test_publishes_are_stored_and_answered_alike_on_every_path(
    tmp_path: Path, reader: str, level: int, how: str
) -> None:
    sent = script(level)
    with (
        mqtt_server(tmp_path, ack="written", topic_alias_maximum=4) as server,
        RawClient(server.address, level) as client,
    ):
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.connect("publisher")
        received = server.status()["bytes_received"] + 2  # PINGREQ
        received += sum(len(encode_packet(one, level)) for one in sent)
        for piece in pieces(b"".join(encode_packet(one, level) for one in sent), how):
            client.send_bytes(piece)
        answers = [client.next_packet() for one in sent if one.qos]
        ids = [one.packet_id for one in sent if one.qos]
        assert [answer.packet_id for answer in answers] == ids  # type: ignore[union-attr]
        assert [type(answer) for answer in answers] == [
            packets.Pubrec if one.qos == 2 else Puback for one in sent if one.qos
        ]
        client.expect_silence()
        wait_for(lambda: server.status()["bytes_submitted"] == 0)  # publishes of QoS 0 may still be in flight
        records = list(server.store.log("mqtt").reader())
        assert [(one.topic, one.payload) for one in records] == [(one.topic, one.payload) for one in sent]
        status = server.status()
        assert status["packets_received"] == len(sent) + 2  # CONNECT, PINGREQ
        assert status["packets_sent"] == len(ids) + 2
        assert status["bytes_received"] == received


@pytest.mark.slow
def test_delayed_reader_gets_all_acknowledgements_in_order(tmp_path: Path, reader: str) -> None:
    """Its socket takes no more at some point: what follows waits behind what waits already."""
    count, rounds = 60_000, 25
    with mqtt_server(tmp_path, ack="written", unsent_bytes=4096) as server, socket.socket() as client:
        client.settimeout(TIMEOUT_S)
        client.connect(server.address)
        client.sendall(encode_packet(packets.Connect("deaf", 4, True, 0, None, None, None, Properties()), 4))
        assert client.recv(4) == b"\x20\x02\0\0"
        data = b"".join(b"\x32\x05\0\1t" + number.to_bytes(2, "big") for number in range(1, count + 1))

        def send_all() -> None:
            left = memoryview(data * rounds)
            while left:  # each call has its own timeout: all together take what the machine takes
                left = left[client.send(left) :]

        sender = threading.Thread(target=send_all)
        sender.start()
        wait_for(lambda: server.status()["over_unsent_bytes"])
        received = bytearray()
        while len(received) < 4 * count * rounds:
            received += client.recv(1 << 20)
        sender.join(TIMEOUT_S)
        expected = b"".join(b"\x40\2" + number.to_bytes(2, "big") for number in range(1, count + 1))
        assert received == expected * rounds


def receive_some(client: socket.socket) -> bytes:
    try:
        return client.recv(1 << 16)
    except BlockingIOError:
        return b""


@pytest.mark.parametrize("how", ["reset", "half-closed", "closed"])
def test_publishes_before_a_disconnect_are_kept(
    tmp_path: Path, reader: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with mqtt_server(tmp_path, ack="written") as server, RawClient(server.address) as other:
        other.connect("other")
        client = RawClient(server.address)
        client.connect("goes")
        client.publish("t", b"1")
        client.send(Publish("t", b"2"), Publish("t", b"3"))
        wait_for(lambda: server.store.log("mqtt").end_offset == 3)
        if how == "reset":
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif how == "half-closed":
            client.socket.shutdown(socket.SHUT_WR)
            client.expect_closed()
        client.close()
        wait_for(lambda: server.status()["connections"] == 1)
        other.publish("t", b"4")
    assert ("lost: " in caplog.text) == (how == "reset")
    assert caplog.text.count("'goes'") == 2  # that it came, and that it went


def test_publisher_above_its_bound_is_held_and_resumed(tmp_path: Path, reader: str) -> None:
    with (
        mqtt_server(tmp_path, ack="synced", client_submitted_bytes=2048) as server,
        RawClient(server.address) as client,
    ):
        client.connect("much")
        sent = [Publish("t", b"%5d" % number * 50, 1, packet_id=number) for number in range(1, 400)]
        client.send(*sent)
        assert [client.expect(Puback).packet_id for _ in sent] == list(range(1, 400))
        records = list(server.store.log("mqtt").reader())
        assert [one.payload for one in records] == [one.payload for one in sent]


def test_heavy_publisher_takes_turns_without_loss(
    tmp_path: Path, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    portions: list[int] = []
    release = link_module.ClientProtocol.release

    def released(link: link_module.ClientProtocol, portion: int) -> None:
        portions.append(portion)
        release(link, portion)

    monkeypatch.setattr(link_module.ClientProtocol, "release", released)
    with (
        mqtt_server(tmp_path, ack="written", client_submitted_bytes=2048) as server,
        RawClient(server.address) as greedy,
        RawClient(server.address) as modest,
    ):
        greedy.connect("greedy")
        modest.connect("modest")
        sent: list[bytes] = []
        while portions.count(0) == len(portions):
            assert len(sent) < 1_000_000
            batch = [b"%8d" % (len(sent) + number) * 10 for number in range(100)]
            greedy.send(*[Publish("t", payload) for payload in batch])
            sent += batch
            modest.publish("u", b"")
        greedy.publish("t", b"last")  # as much as is on its way by now is read in turns
        stored = [one.payload for one in server.store.log("mqtt").reader(topics="t")]
        assert stored == [*sent, b"last"]


@pytest.mark.slow
@needs_kernel
def test_stopped_front_closes_its_poller_and_the_next_one_has_a_new_one(tmp_path: Path) -> None:
    gc.collect()  # loops that earlier tests have left, with their epolls
    before = polls()
    for number in range(2):
        with mqtt_server(tmp_path) as server, RawClient(server.address) as client:
            client.connect("c")
            client.publish("t", b"%d" % number)
            assert len(polls()) > len(before)
    assert polls() == before


def polls() -> list[str]:
    """The epolls of this process, by what their descriptors are links to."""
    found = []
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # another thread has closed it since it was listed
            if "eventpoll" in str(one.readlink()):
                found.append(one.name)
    return sorted(found)


# The kernel alone, with links that count what they are called for.


def wire(sent: Iterable[Publish | bytes], level: int) -> bytes:
    return b"".join(one if isinstance(one, bytes) else encode_packet(one, level) for one in sent)


class Received(loops.AdmittedCount):
    level, room, between_packets = 4, 1 << 32, True

    def __init__(self) -> None:
        self.unacknowledged = 0


class ClientProtocol(loops.PolledClient):
    """A link whose connection is between two packets whenever the kernel asks."""

    def __init__(self, parts: "Parts", name: str) -> None:
        self.parts = parts
        self.name = name
        self.peer, self.own = socket.socketpair()
        self.connection = Received()
        self.session: Any = SimpleNamespace(no_local=False)
        self.permissions = self.publish_rates = None
        self.submitted_bytes = self.last_seen = 0
        self.counts = Counts()
        self.transport = self
        self.writable = True
        self.waiting = self.written = b""
        self.calls: list[Any] = []
        self.on_call: Callable[[], object] = lambda: None
        self.socket = parts.sockets.add(self, self.own.fileno())

    def buffer_updated(self, count: int) -> None:
        self.calls.append(bytes(self.parts.memory[FRONT_BYTES : FRONT_BYTES + count]))
        self.on_call()

    def take_rest(self, position: int, end: int) -> None:
        self.calls.append(("rest", bytes(self.parts.memory[position:end])))

    def take_pubacks(self, packet_ids: list[int]) -> None:
        self.calls.append(("pubacks", packet_ids))

    def bring(self, topics: list[bytes]) -> bool:
        self.calls.append(("bring", topics))
        self.on_call()
        if b"refused" in topics:
            return False
        for topic in topics:
            self.parts.known.add(topic, 9)
        return True

    def reading_ended(self, error: OSError | None) -> None:
        self.calls.append(("ended", None if error is None else type(error)))

    def acknowledge(self, data: bytes, count: int) -> None:
        self.calls.append(("acknowledge", data, count))

    def get_write_buffer_size(self) -> int:
        return len(self.waiting)

    def write(self, data: bytes) -> None:
        self.written += data

    def received(self) -> bytes:
        """Return all bytes that have arrived at the other end."""
        self.peer.setblocking(False)
        found = b""
        while some := receive_some(self.peer):
            found += some
        return found

    def close(self) -> None:
        self.peer.close()
        self.own.close()


class Parts(loops.CollectedTurn):
    """The kernel's sockets over a gathering, with an ingest that is only told things."""

    def __init__(self) -> None:
        self.memory = bytearray(FRONT_BYTES + 65_536)
        self.known = loops.TopicCache()
        self.known.add(b"t", 0)
        self.gathering: Any = loops.PublishFastPath(self.known, 1 << 20)
        self.room_bytes, self.modest_bytes = 1 << 20, MODEST_BYTES
        self.sockets = loops.Sockets(self, self.memory, FRONT_BYTES, PIECE_BYTES)
        self.links: list[ClientProtocol] = []
        self.told: list[Any] = []
        self.flushed: list[PublishColumns] = []

    def charged(self, link: ClientProtocol) -> None:
        self.told.append(("charged", link.name))

    def flush(self) -> None:
        gathered = self.gathering.finish()
        self.flushed.append(gathered._replace(sources=[]))
        self.told.append(("flush", gathered.record_count))

    def failed(self, link: ClientProtocol, error: Exception) -> None:
        self.told.append((link.name, str(error)))

    def link(self, name: str = "one", *, known: bool = True) -> ClientProtocol:
        """A new one; if `known`, Python has dealt with its first bytes."""
        link = ClientProtocol(self, name)
        self.links.append(link)
        if known:
            link.peer.send(b"\xc0\0")
            self.turn()
            assert link.calls.pop() == b"\xc0\0"
        return link

    def turn(self) -> int:
        count: int = self.sockets.receive(*TURN, self.failed)
        return count

    def close(self) -> None:
        self.sockets.close()
        for link in self.links:
            link.close()


@pytest.fixture
def parts() -> Iterator[Parts]:
    if loops.Sockets is None:
        pytest.skip("the compiled kernel or epoll is not there")
    with contextlib.closing(Parts()) as made:
        yield made


def test_turn_of_plain_publishers_calls_no_protocol(parts: Parts) -> None:
    links = [parts.link(str(number)) for number in range(200)]
    for link in links:
        link.peer.send(PUBLISH)
    assert parts.turn() == 200 * len(PUBLISH)
    assert parts.gathering.count == 200
    assert [link.calls for link in links] == [[]] * 200
    assert {(link.submitted_bytes, link.last_seen) for link in links} == {(len(PUBLISH), 5)}
    assert {link.connection.unacknowledged for link in links} == {1}
    gathered = parts.gathering.finish()
    assert parts.sockets.acknowledge([(gathered.sources, gathered.answers)]) == (200, 800)
    assert {link.peer.recv(100) for link in links} == {b"\x40\2\0\7"}
    assert {link.connection.unacknowledged for link in links} == {0}


def test_socket_may_be_removed_while_its_topic_is_looked_up(parts: Parts) -> None:
    """What it has published is gathered; its count is not added to None, in the memory behind it."""
    link, other = parts.link(), parts.link("other")
    link.on_call = lambda: parts.sockets.remove(link.socket)
    behind = ctypes.c_int64.from_address(id(None) + sys.getsizeof(None))
    before = behind.value
    link.peer.send(encode_packet(Publish("new", b"payload", 1, packet_id=7), 4))
    other.peer.send(PUBLISH)
    parts.turn()
    assert link.calls == [("bring", [b"new"])]
    assert behind.value == before
    assert (parts.gathering.count, other.connection.unacknowledged, parts.told) == (2, 1, [])


@pytest.mark.parametrize(
    ("received", "packet_ids"),
    [
        (b"\x40\2\0\7", [7]),
        (b"\x40\2\1\0" * 3000 + b"\x40\2\xff\xff", [256] * 3000 + [65_535]),
        (b"\x40\2\0\7\x40\2\0\0", None),
        (b"\x40\2\0\7\x40", None),
        (b"\x40\3\0\7\x10", None),
        (b"\x50\2\0\7", None),
        (b"\x40\2\0\7" + PUBLISH, None),
    ],
)
def test_received_acknowledgements_alone_are_passed_as_a_run(
    parts: Parts, received: bytes, packet_ids: list[int] | None
) -> None:
    link = parts.link()
    link.peer.send(received)
    assert parts.turn() == len(received)
    assert link.last_seen == 5
    if packet_ids is None:
        assert [call[0] for call in link.calls] == ["rest"], "its connection looks for itself"
    else:
        assert link.calls == [("pubacks", packet_ids)]


def test_other_packets_go_to_the_protocol_once_a_socket(parts: Parts) -> None:
    link = parts.link()
    link.peer.send(PUBLISH * 3 + b"\xc0\0" + PUBLISH)
    parts.turn()
    assert link.calls == [("rest", b"\xc0\0" + PUBLISH)]
    assert parts.gathering.count == 3


@pytest.mark.parametrize(
    "why", ["permissions", "publish_rates", "no_local", "session", "paused", "within a packet"]
)
def test_protocol_with_special_rules_is_called(parts: Parts, why: str) -> None:
    link = parts.link()
    if why in ("permissions", "publish_rates"):
        setattr(link, why, object())
    elif why == "no_local":
        link.session.no_local = True
    elif why == "session":
        link.session = None
    elif why == "paused":
        parts.gathering.paused = True
    else:
        link.connection.between_packets = False
        link.peer.send(PUBLISH[:1])
        parts.turn()
        assert link.calls.pop() == ("rest", PUBLISH[:1])
    link.peer.send(PUBLISH)
    assert parts.turn() == 0  # the link counts its bytes itself
    assert link.calls == [PUBLISH]
    assert parts.gathering.count == 0


def test_poller_reports_when_a_bound_is_passed(parts: Parts) -> None:
    link = parts.link()
    large = encode_packet(Publish("t", b"x" * MODEST_BYTES, 0), 4)
    link.peer.send(large)
    parts.turn()
    assert parts.told == [("charged", "one")]
    link.peer.send(large * 4)
    parts.turn()
    assert parts.told[1:] == [("charged", "one"), ("flush", 5)]


def test_mqtt_5_publisher_is_taken_up_to_its_receive_maximum(parts: Parts) -> None:
    link = parts.link()
    link.connection.level, link.connection.room = 5, 2
    link.peer.send(b"\xc0\0")
    parts.turn()
    three = encode_packet(Publish("t", b"", 1, packet_id=1), 5) * 3
    link.calls.clear()
    link.peer.send(three)
    parts.turn()
    assert link.calls == [("rest", three)]


@needs_kernel
@pytest.mark.parametrize(
    "received",
    [
        MUCH,
        [*MUCH, b"\x32"],
        [*MUCH, b"\xc0\0", PLAIN],
        [*MUCH, Publish("t", b"kept", retain=True)],
        [*MUCH, Publish("new", b"x"), PLAIN],
        [*MUCH, Publish("refused", b"x"), PLAIN],
        [PLAIN],
        [b"\xc0\0"],
        [b"\x40\2\0\7" * 5000],
        [],
    ],
    ids=[
        "much",
        "cut off",
        "a ping in between",
        "retained",
        "a new topic",
        "a topic that is refused",
        "little",
        "a ping",
        "acknowledgements",
        "the end",
    ],
)
@pytest.mark.parametrize(("level", "room"), [(4, 0), (5, 1 << 32), (5, 1000)])
def test_socket_with_much_to_read_is_read_like_others(
    received: list[Publish | bytes], level: int, room: int
) -> None:
    outcomes = []
    for before in ([PLAIN], MUCH):
        with contextlib.closing(Parts()) as parts:
            link = parts.link(known=False)
            link.connection.level = level
            for sent in ([b"\xc0\0"], before):
                link.peer.send(wire(sent, level))
                parts.turn()
            parts.flush()
            link.submitted_bytes = link.connection.unacknowledged = 0
            for told in (link.calls, parts.told, parts.flushed):
                told.clear()
            link.connection.room = room
            link.peer.send(wire(received, level))
            if not received:
                link.peer.shutdown(socket.SHUT_WR)
            count = parts.turn()
            parts.flush()
            counts = (count, link.submitted_bytes, link.connection.unacknowledged, link.last_seen)
            outcomes.append((counts, link.calls, parts.told, parts.flushed))
    assert outcomes[0] == outcomes[1]


def test_paused_socket_is_not_read_until_it_is_resumed(parts: Parts) -> None:
    link = parts.link()
    parts.sockets.pause(link.socket)
    parts.sockets.pause(link.socket)
    link.peer.send(PUBLISH)
    parts.turn()
    assert (parts.gathering.count, link.calls) == (0, [])
    parts.sockets.resume(link.socket)
    parts.turn()
    assert link.calls == [PUBLISH]


def test_socket_ended_in_the_same_turn_is_not_read_nor_its_reused_descriptor(
    parts: Parts,
) -> None:
    one, other = parts.link("one"), parts.link("other")
    one.session = None
    for link in (one, other):
        link.peer.send(PUBLISH)
    taken: list[ClientProtocol] = []

    def end_the_other() -> None:
        number = other.own.fileno()
        parts.sockets.remove(other.socket)
        other.close()
        for _ in range(2):
            taken.append(parts.link("new", known=False))
        assert number in [link.own.fileno() for link in taken] or number in [
            link.peer.fileno() for link in taken
        ]

    one.on_call = end_the_other
    parts.turn()
    assert other.calls == []
    assert [link.calls for link in taken] == [[], []]
    assert (other.socket.fd, other.socket.reading) == (-1, False)


def test_error_of_one_protocol_does_not_affect_others(parts: Parts) -> None:
    links = [parts.link(str(number)) for number in range(5)]

    def fail() -> None:
        raise RuntimeError("broken")

    links[2].session, links[2].on_call = None, fail
    for link in links:
        link.peer.send(PUBLISH)
    parts.turn()
    assert parts.gathering.count == 4
    assert parts.told == [("2", "broken")]


def test_end_of_a_socket_is_reported_once_and_ends_watching(parts: Parts) -> None:
    closed, half, reset = parts.link("closed"), parts.link("half"), parts.link("reset")
    closed.peer.close()
    half.peer.send(PUBLISH)
    half.peer.shutdown(socket.SHUT_WR)
    reset.own.send(b"never read")  # then a local socket's end is a reset
    reset.peer.close()
    for _ in range(3):
        parts.turn()
    assert [closed.calls, half.calls] == [[("ended", None)], [("ended", None)]]
    assert reset.calls == [("ended", ConnectionResetError)]
    assert parts.gathering.count == 1


def test_sent_bytes_keep_their_order_with_those_buffered_by_the_transport(
    parts: Parts,
) -> None:
    link, gone, full = parts.link(), parts.link("gone"), parts.link("full")
    parts.sockets.remove(gone.socket)
    full.writable = False
    puback = b"\x40\2\0\7"
    turn = ([link, gone, full, gone], [puback, puback * 2, puback, b""])
    assert parts.sockets.acknowledge([turn]) == (1, 4)
    assert gone.calls == [("acknowledge", puback * 2, 2)]
    assert full.calls == [("acknowledge", puback, 1)]  # it counts what it does not read
    much = b"".join(b"\x40\2" + number.to_bytes(2, "big") for number in range(60_000)) * 20
    link.deliver(b"first")
    assert parts.sockets.acknowledge([([link], [much])]) == (len(much) // 4, len(much))
    assert 0 < len(link.written) < len(much)
    link.waiting = link.written
    parts.sockets.acknowledge([([link], [puback])])
    link.deliver(b"last")
    assert link.received() + link.written == puback + b"first" + much + puback + b"last"
    link.waiting, link.written = b"", b""
    link.deliver(b"again")
    assert (link.received(), link.written) == (b"again", b"")
    link.peer.close()
    parts.sockets.acknowledge([([link], [puback])])
    assert link.written == puback  # the transport will meet the error, too


def test_answers_of_several_turns_are_one_piece_in_order(parts: Parts) -> None:
    one, other, gone = parts.link("one"), parts.link("other"), parts.link("gone")
    parts.sockets.remove(gone.socket)
    pubacks = [b"\x40\2\0" + bytes([number]) for number in range(6)]
    turns = [
        ([one, gone], [pubacks[0], pubacks[1]]),
        ([other, one, gone], [pubacks[2], pubacks[3], pubacks[4]]),
    ]
    turns += [([other], [b""]), ([one], [pubacks[5]])]
    assert parts.sockets.acknowledge(turns) == (4, 16)
    assert one.peer.recv(100) == pubacks[0] + pubacks[3] + pubacks[5]
    assert other.peer.recv(100) == pubacks[2]
    assert gone.calls == [("acknowledge", pubacks[1] + pubacks[4], 2)]
    assert one.connection.unacknowledged == -3
    assert parts.sockets.acknowledge([]) == (0, 0)
    with pytest.raises(ValueError, match="1 answers to 2 links"):
        parts.sockets.acknowledge([([one, other], [b""])])


def test_turn_ends_although_one_client_sends_continuously(parts: Parts) -> None:
    one, other = parts.link("one"), parts.link("other")
    for link in (one, other):
        link.peer.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            one.peer.send(PUBLISH * 100)
    other.peer.send(PUBLISH)
    assert parts.turn() <= 65_536 + len(PUBLISH)
    assert other.submitted_bytes == len(PUBLISH)


def test_bad_arguments_are_refused(parts: Parts) -> None:
    with pytest.raises(ValueError, match="byte 70"):
        loops.Sockets(parts, bytearray(70), 70, 1)
    with pytest.raises(ValueError, match="descriptor -1"):
        parts.sockets.add(parts.link(), -1)
    with pytest.raises(OSError, match="descriptor"):
        parts.sockets.add(parts.link(), 1 << 20)
    link = parts.link()
    link.session = None
    link.on_call = parts.turn
    link.peer.send(PUBLISH)
    parts.turn()
    assert parts.told == [("one", "receive is called by what it calls")]


CALLS_DELIVERED = 15
"""From a publisher's socket to the subscriber's acknowledgement, with a margin for readable code."""
CALLS_ACKNOWLEDGED = 6
"""Of a publish without a subscriber."""


@needs_kernel
def test_single_message_takes_few_calls_of_python_functions(tmp_path: Path) -> None:
    """Its code has left the processor's caches since the last one, so what it costs is how much of it there is."""
    turns: list[int] = []

    def count(frame: FrameType, event: str, argument: object) -> None:
        counted = turns  # another list may take its place at any moment
        if event == "call" and frame.f_code is Poller._turn.__code__:
            counted.append(0)
        if event == "call" and counted:
            counted[-1] += 1

    def calls(turn_count: int, message: Callable[[], object]) -> int:
        nonlocal turns
        turns = []
        message()
        wait_for(lambda: len(turns) >= turn_count)
        return sum(turns)

    # No flush, during which the loop does not write itself.
    with (
        timestone.open(tmp_path, ack="written", sync_interval_ms=3_600_000) as store,
        mqtt_server(tmp_path, store=store) as server,
        RawClient(server.address) as publisher,
        RawClient(server.address) as subscriber,
    ):
        publisher.connect("publisher")
        subscriber.connect("subscriber")
        subscriber.subscribe("heard")

        def deliver() -> None:
            publisher.publish("heard", b"x" * 100)
            subscriber.receive(1)

        deliver()
        publisher.publish("unheard")
        server.call(lambda: sys.setprofile(count))
        # Where the machine has stalled in a write, the next ones are the committer's for a second or two.
        wait_for(lambda: calls(2, deliver) <= CALLS_DELIVERED)
        wait_for(lambda: calls(1, lambda: publisher.publish("unheard")) <= CALLS_ACKNOWLEDGED)
        server.call(lambda: sys.setprofile(None))
