"""A front under random events of its clients, the same for the same seed: what each client receives after each event,
and in the end the log. Two kernels give the same lines.

    python -m tests.support.front_events DIRECTORY SEED STEPS
"""

import random
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import timestone
from mqtt_front.broker import Broker
from mqtt_front.codec import packets
from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.packets import Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel, Request
from mqtt_front.codec.properties import Properties
from mqtt_front.feeds.feed import Feed, FeedState
from mqtt_front.kernel import loops
from tests.support.mqtt_clients import RawClient, parse
from tests.support.mqtt_fuzz import changed, cuts, valid_packets
from tests.support.mqtt_server import MqttServer, mqtt_server
from tests.support.step_clock import StepClock
from tests.support.waiting import wait_for
from timestone.reader import Reader

_BUSY = frozenset((FeedState.READY, FeedState.READING, FeedState.SAVING))
_TOPICS = ("a", "a/b", "a/c", "b/c", "a longer/topic/name", "c")
_FILTERS = ("a", "a/#", "a/+", "+/c", "c", "a longer/#", "x/+")
_STREAMS = ("$stream/mqtt/a/b", "$stream/mqtt/@offset:20/a/#")
_PLACE = re.compile(rb"(?<=offset\0).[0-9]+|(?<=timestamp\0\x10)[0-9]{16}", re.DOTALL)
_WEIGHTS = {
    "publish": 40,
    "publish together": 12,
    "publish changed": 1,
    "answer": 10,
    "all answer": 10,
    "subscribe": 8,
    "unsubscribe": 2,
    "leave": 2,
    "come": 8,
    "pass time": 1,
}


class Device:
    """A client with its wishes, and what it has not answered."""

    def __init__(self, number: int, chance: random.Random) -> None:
        self.name = f"d{number}"
        self.own_topic = f"own/{number}"
        """Topic of what it publishes beside others: the order among publishers is the system's."""
        self.filters = [*_FILTERS, f"own/{chance.randrange(12)}"]
        self.granted: Sequence[int] = (0, 1, 1, 2)
        """QoS of its subscriptions."""
        if chance.random() < 0.6:  # several get the same
            self.filters, self.granted = ["a/#"], (0, 0, 0, 0, 0, 0, 0, 1)
        self.qos_levels = chance.choice(((0,), (0, 0, 1), (0, 1, 1), (0, 0, 0, 0, 1, 1, 1, 2)))
        self.is_plain = chance.random() < 0.6
        """Whether it publishes without properties and RETAIN, and to known topics only."""
        self.level = chance.choice((3, 4, 4, 5, 5))
        self.clean = chance.random() < 0.5
        five = self.level == 5
        limit = chance.choice((None, None, 120, 400)) if five else None
        self.properties = Properties(
            receive_maximum=chance.choice((None, None, 1, 3, 20)),
            maximum_packet_size=limit,
            session_expiry_interval=None if self.clean else 1000,
        ) if five else Properties()  # fmt: skip
        if (
            limit is None and chance.random() < 0.25
        ):  # in what order two feeds of a session take turns is not defined
            self.filters = [chance.choice(_STREAMS)]
        self.client: RawClient | None = None
        self.sent_bytes = self.received_bytes = 0
        self.unanswered: list[Packet] = []
        self.packet_id = 0

    def send_bytes(self, data: bytes) -> None:
        """Send as much as the server takes."""
        assert self.client is not None
        self.sent_bytes += len(data)
        try:
            self.client.send_bytes(data)
        except OSError:
            pass  # the server has closed the connection: `arrived` finds it

    def send(self, *sent: Packet) -> None:
        self.send_bytes(b"".join(encode_packet(packet, self.level) for packet in sent))

    def arrived(self, total_bytes: int | None) -> list[Packet]:
        """Return the packets that have arrived, deliveries behind answers: among these any may come first.

        total_bytes: number of bytes that the server has sent; None if it has closed the connection."""
        assert self.client is not None
        data = b""
        while total_bytes is None or self.received_bytes + len(data) < total_bytes:
            try:
                piece = self.client.socket.recv(1 << 16)
            except ConnectionError:
                break
            if not piece:
                break
            data += piece
        self.received_bytes += len(data)
        found, rest = parse(data, self.level)
        assert total_bytes is None or (rest == b"" and self.received_bytes == total_bytes)
        found.sort(key=lambda one: isinstance(one, Publish))
        self.unanswered += [one for one in found if isinstance(one, (Publish, Pubrec, Pubrel))]
        return found

    def come(self, address: tuple[str, int]) -> None:
        """Connect, and wait for CONNACK."""
        self.client = RawClient(address, self.level)
        self.sent_bytes = self.received_bytes = 0
        self.send(packets.Connect(self.name, self.level, self.clean, 0, properties=self.properties))
        data = self.client.socket.recv(2, socket.MSG_WAITALL)
        self.received_bytes = len(data + self.client.socket.recv(data[1], socket.MSG_WAITALL))

    @property
    def port(self) -> int:
        """Return the port of its end of the connection."""
        assert self.client is not None
        port: int = self.client.socket.getsockname()[1]
        return port


class Events:
    """Devices at a server, and the events between them."""

    def __init__(self, server: MqttServer, clock: StepClock, chance: random.Random) -> None:
        assert server.front._broker is not None
        self.server, self.clock, self.chance = server, clock, chance
        self.broker: Broker = server.front._broker
        self.devices = [Device(number, chance) for number in range(chance.choice((3, 6, 12, 20)))]
        self.weights = dict(_WEIGHTS)
        if chance.random() < 0.3:
            self.weights["publish together"] = 0
            for device in self.devices:
                if device.filters[0] not in _STREAMS:
                    device.filters.append("#")

    def run(self, step_count: int) -> Iterator[str]:
        """Yield a line for each event and each device that receives something."""
        for device in self.devices:
            self._be_there(device)
            if self.chance.random() < 0.8:
                self._subscribe(device)
            yield from self._received()
        for number in range(step_count):
            (kind,) = self.chance.choices(list(self.weights), list(self.weights.values()))
            device = self.chance.choice(self.devices)
            yield f"{number} {kind} {device.name}"
            acts: dict[str, Callable[[Device], object]] = {
                "publish": self._publish, "publish together": self._publish_together,
                "publish changed": self._publish_changed, "answer": self._answer, "subscribe": self._subscribe,
                "unsubscribe": self._unsubscribe, "leave": self._leave, "come": self._be_there,
                "pass time": lambda device: self.server.pass_time(1),
            }  # fmt: skip
            if kind == "all answer":
                for one in self.devices:
                    if one.client is not None:
                        self._answer(one, everything=True)
            elif device.client is not None or kind in ("come", "pass time"):
                acts[kind](device)
            yield from self._received()

    def _received(self) -> Iterator[str]:
        self._settle()
        totals = self.server.call(self._sent_bytes)
        for device in self.devices:
            if device.client is None:
                continue
            is_open = device.port in totals
            found = device.arrived(totals.get(device.port))
            if not is_open:  # an error may overtake acknowledgements
                found = [one for one in found if isinstance(one, packets.Disconnect)]
                self._gone(device)
            for packet in found:
                encoded = _PLACE.sub(b"", encode_packet(packet, device.level))
                yield f"  {device.name} {type(packet).__name__} {encoded.hex()}"
            if not is_open:
                yield f"  {device.name} is closed"

    def _settle(self) -> None:
        wait_for(lambda: self.server.call(self._is_settled))

    def _sent_bytes(self) -> dict[int, int]:
        """Return the bytes sent to each client by the port of its end. In the loop's thread."""
        links = self.broker.connections.links
        return {int(one.peer.rpartition(":")[2]): one.sent_bytes for one in links if not one.closing}

    def _is_settled(self) -> bool:
        """Return whether everything sent has arrived, and what follows from it. In the loop's thread."""
        if not self.broker.ingest.settled or self.broker.delivery._scheduled:
            return False
        if not self.broker.state.saved:
            self.broker.save()
            return False
        sent_bytes = {one.port: one.sent_bytes for one in self.devices if one.client is not None}
        for link in self.broker.connections.links:
            port = int(link.peer.rpartition(":")[2])
            if link.closing or port not in sent_bytes:
                continue
            if link.received_bytes < sent_bytes[port]:
                return False
            session = link.session
            if session is not None and (session.saving_count or any(map(_is_busy, session.feeds.values()))):
                return False
        return True

    def _gone(self, device: Device) -> None:
        assert device.client is not None
        device.client.close()
        device.client, device.unanswered = None, []
        name = device.name
        wait_for(lambda: self.server.call(lambda: name not in self.broker.sessions.connected))

    def _be_there(self, device: Device) -> None:
        if device.client is None:
            device.come(self.server.address)

    def _leave(self, device: Device) -> None:
        if self.chance.random() < 0.5:
            device.send(packets.Disconnect())
            self._settle()
        self._gone(device)

    def _subscribe(self, device: Device) -> None:
        chance, five = self.chance, device.level == 5
        wanted = [
            Request(
                chance.choice(device.filters),
                chance.choice(device.granted),
                *((chance.random() < 0.03, chance.random() < 0.1, chance.randrange(3)) if five else ()),
            )
            for _ in range(chance.choice((1, 1, 2)))
        ]
        identifiers = (chance.randrange(1, 300),) if five and chance.random() < 0.1 else ()
        device.send(
            packets.Subscribe(
                self._packet_id(device), tuple(wanted), Properties(subscription_identifiers=identifiers)
            )
        )

    def _unsubscribe(self, device: Device) -> None:
        device.send(packets.Unsubscribe(self._packet_id(device), (self.chance.choice(device.filters),)))

    def _publish(self, device: Device) -> None:
        data = self._publishes(device)
        pieces = cuts(self.chance, data) if self.chance.random() < 0.2 else [data]
        for piece in pieces:
            device.send_bytes(piece)
            if self.chance.random() < 0.5:
                self._settle()

    def _publish_together(self, device: Device) -> None:
        """Let several devices send while the loop stands still, so that it finds all of them readable in one turn."""
        present = [one for one in self.devices if one.client is not None]
        publishers = self.chance.sample(present, min(len(present), self.chance.randrange(1, 6)))
        holds, release = threading.Event(), threading.Event()

        def hold() -> None:
            holds.set()
            assert release.wait(10)

        self.server._loop.call_soon_threadsafe(hold)
        assert holds.wait(10)
        try:
            for one in publishers:
                one.send_bytes(self._publishes(one, [one.own_topic]))
        finally:
            release.set()

    def _publish_changed(self, device: Device) -> None:
        device.send_bytes(changed(self.chance, self._publishes(device), valid_packets(device.level)))

    def _publishes(self, device: Device, topics: Sequence[str] = _TOPICS) -> bytes:
        chance, sent = self.chance, []
        for _ in range(1 if chance.random() < 0.6 else chance.randrange(2, 40)):
            qos, is_plain = chance.choice(device.qos_levels), device.is_plain
            topic = chance.choice(topics)
            if topics is _TOPICS and not is_plain and chance.random() < 0.05:
                topic = f"x/{chance.randrange(1000)}"
            properties = Properties()
            if device.level == 5 and not is_plain and chance.random() < 0.2:
                properties = Properties(content_type="text", user_properties=(("a", "1"),))
            payload = chance.randbytes(chance.choice((0, 1, 5, 50, 150, 300)))
            packet_id = self._packet_id(device) if qos else 0
            retain = not is_plain and chance.random() < 0.06
            sent.append(Publish(topic, payload, qos, retain, False, packet_id, properties))
        return b"".join(encode_packet(one, device.level) for one in sent)

    def _packet_id(self, device: Device) -> int:
        device.packet_id = device.packet_id % 65_535 + 1
        return device.packet_id

    def _answer(self, device: Device, *, everything: bool = False) -> None:
        """Let a device answer some of what it has received, in any order, or all."""
        due = [one for one in device.unanswered if not isinstance(one, Publish) or one.qos]
        if not everything and self.chance.random() < 0.4:
            due = self.chance.sample(due, self.chance.randrange(len(due) + 1))
        for one in due:
            device.unanswered.remove(one)
        device.send(*map(_answer_to, due))


def _is_busy(feed: Feed) -> bool:
    """Return whether a feed is served, or is about to be: an append has taken its reader."""
    reader = feed.reader
    is_taken = isinstance(reader, Reader) and reader not in feed.log.wakeups.parked
    return feed.state in _BUSY or (feed.state is FeedState.PARKED and is_taken)


def _answer_to(packet: Packet) -> Packet:
    match packet:
        case Publish(qos=1):
            return Puback(packet.packet_id)
        case Publish():
            return Pubrec(packet.packet_id)
        case Pubrec():
            return Pubrel(packet.packet_id)
        case Pubrel():
            return Pubcomp(packet.packet_id)
    raise AssertionError(packet)


def lines(path: Path, seed: int, step_count: int) -> Iterator[str]:
    """Run a server and the events, and yield the lines."""
    chance, clock = random.Random(seed), StepClock()
    ack = chance.choice(("written", "written", "synced"))
    yield f"ack {ack}"
    with (
        timestone.open(path) as store,
        mqtt_server(path, store=store, clock=clock, ack=ack, inflight_count=20, connects_per_s=0) as server,
        server.standing_still(),
    ):
        yield from Events(server, clock, chance).run(step_count)
        records = sorted(store.log("mqtt").reader("earliest"), key=lambda record: record.topic or "")
        for record in records:
            yield f"{record.topic} {record.flags} {record.headers} {record.payload.hex()}"


def main() -> None:
    """Print the lines, with the kernel in front."""
    path, seed, step_count = sys.argv[1:]
    print(loops.NAME)
    for line in lines(Path(path), int(seed), int(step_count)):
        print(line)


if __name__ == "__main__":
    main()
