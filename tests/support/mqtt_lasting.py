"""Clients that survive the server: they keep the client's session state, reconnect and continue, as section 4.4
requires."""

import math
import random
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

from mqtt_front.codec import packets
from mqtt_front.codec.packets import Connack, Connect, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from mqtt_front.codec.properties import Properties
from mqtt_front.reasons import Reason
from tests.support.mqtt_clients import RawClient
from tests.support.waiting import TIMEOUT_S

_LASTING = Properties(session_expiry_interval=0xFFFFFFFF)
_WINDOW = 20
_ELSEWHERE = {
    Reason.SERVER_SHUTTING_DOWN,
    Reason.SERVER_UNAVAILABLE,
    Reason.SERVER_BUSY,
    Reason.USE_ANOTHER_SERVER,
    3,
}
"""Reasons to connect again. A CONNACK of a server that stops has SERVER_UNAVAILABLE, one that another connection of the
client has overtaken has SERVER_BUSY, and both have 3 in MQTT 3.1.1."""


class LastingClient:
    """One client id over many connections. `run` serves one connection until the server is gone or `done` returns
    true."""

    look_s = 0.2
    """How often to ask `done`, and to look for something to send, while nothing comes."""

    def __init__(self, client_id: str, level: int, will: packets.Will | None = None) -> None:
        self.client_id = client_id
        self.level = level
        self._will = will
        self.met = False
        """The server may know this session."""
        self.patience_s = math.inf
        """How long it waits for CONNACK or, once it has sent a ping, for any packet."""

    def run(self, address: tuple[str, int], done: Callable[[], bool] = lambda: False) -> None:
        try:
            with RawClient(address, self.level) as client:
                properties = _LASTING if self.level == 5 else Properties()
                client.send(
                    Connect(self.client_id, self.level, False, will=self._will, properties=properties)
                )
                answer = client.next_packet(min(self.patience_s, TIMEOUT_S))
                if answer is None:
                    return
                assert isinstance(answer, Connack)
                if answer.reason in _ELSEWHERE:
                    return
                assert answer.reason == 0, answer
                assert answer.session_present or not self.met, "the session was lost"
                self.begin(client, answer.session_present)
                self.met = True
                self.go_on(client)
                heard_s, is_asked = time.monotonic(), False
                while not done():
                    silent_s = time.monotonic() - heard_s
                    if silent_s > self.patience_s:
                        return
                    if silent_s > self.patience_s / 2 and not is_asked:
                        client.send(packets.Pingreq())
                        is_asked = True
                    try:
                        packet = client.next_packet(timeout_s=self.look_s)
                    except TimeoutError:
                        self.go_on(client)
                        continue
                    if packet is None:
                        return
                    heard_s, is_asked = time.monotonic(), False
                    self.take(client, packet)
                    self.go_on(client)
        except OSError:
            return  # the server is gone

    def begin(self, client: RawClient, present: bool) -> None:
        """After CONNACK: resend unfinished packets."""

    def go_on(self, client: RawClient) -> None:
        """Send new packets."""

    def take(self, client: RawClient, packet: Packet) -> None:
        """Handle a packet."""


class LastingPublisher(LastingClient):
    """Publishes counted payloads to topics in turn at random QoS, a window at a time, and resends unfinished ones."""

    levels: Sequence[int] = (0, 1, 2)
    """The QoS to choose from."""

    def __init__(
        self,
        client_id: str,
        level: int,
        first: int,
        chance: random.Random,
        topics: Sequence[str] = ("k",),
        *,
        retain: bool = False,
    ) -> None:
        super().__init__(client_id, level)
        self._retain = retain
        self.first = self.number = first
        self._topics = topics
        self.acknowledged: list[int] = []
        self.stopping = False
        self.window = _WINDOW
        self._chance = chance
        self._in_flight: dict[int, tuple[int, int]] = {}
        self._released: dict[int, None] = {}
        self._packet_id = 0

    @property
    def idle(self) -> bool:
        """Everything is acknowledged."""
        return not self._in_flight and not self._released

    def begin(self, client: RawClient, present: bool) -> None:
        again = [self._publish(packet_id, duplicate=True) for packet_id in self._in_flight]
        client.send(*again, *map(Pubrel, self._released))

    def go_on(self, client: RawClient) -> None:
        fresh = []
        while not self.stopping and len(self._in_flight) + len(self._released) < self.window:
            qos = self._chance.choice(self.levels)
            self.number += 1
            if qos == 0:
                fresh.append(Publish(self._topic(self.number), b"0:%d" % self.number, 0, self._retain))
                continue
            self._packet_id = self._packet_id % 60_000 + 1
            self._in_flight[self._packet_id] = (self.number, qos)
            fresh.append(self._publish(self._packet_id))
        if fresh:
            client.send(*fresh)

    def _topic(self, number: int) -> str:
        return self._topics[number % len(self._topics)]

    def end_with(self, number: int) -> None:
        """Publish only this number, at QoS 1."""
        self._in_flight, self.stopping = {1: (number, 1)}, True

    def _publish(self, packet_id: int, *, duplicate: bool = False) -> Publish:
        number, qos = self._in_flight[packet_id]
        return Publish(self._topic(number), b"%d:%d" % (qos, number), qos, self._retain, duplicate, packet_id)

    def take(self, client: RawClient, packet: Packet) -> None:
        if isinstance(packet, Pubcomp):
            self._released.pop(packet.packet_id, None)
        elif isinstance(packet, (Puback, Pubrec)):
            entry = self._in_flight.pop(packet.packet_id, None)
            if packet.reason >= Reason.UNSPECIFIED_ERROR:
                return  # it failed, and is in the log or not
            if entry is not None:
                self.acknowledged.append(entry[0])
            if isinstance(packet, Pubrec):
                self._released[packet.packet_id] = None
                client.send(Pubrel(packet.packet_id))


class LastingDevice(LastingPublisher):
    """Publishes one message after another at QoS 1, some each second, and notes how long each waits for its PUBACK."""

    levels = (1,)
    pause_s = 0.3

    def __init__(self, client_id: str, level: int, first: int, topics: Sequence[str] = ("k",)) -> None:
        super().__init__(client_id, level, first, random.Random(first), topics)
        self.window = 1
        self.patience_s = 4.0
        self.waits: list[tuple[float, float]] = []
        """When each message was sent first, and when it was acknowledged, in seconds."""
        self._sent_s = -math.inf

    def go_on(self, client: RawClient) -> None:
        if self.idle and time.monotonic() > self._sent_s + self.pause_s:
            self._sent_s = time.monotonic()
            super().go_on(client)

    def take(self, client: RawClient, packet: Packet) -> None:
        known = len(self.acknowledged)
        super().take(client, packet)
        if len(self.acknowledged) > known:
            self.waits.append((self._sent_s, time.monotonic()))

    def longest_pause_s(self, began_s: float, ended_s: float) -> float:
        """Return the longest time without a PUBACK that has begun between two points in time, and after the first."""
        times_s = [began_s, *(at_s for _, at_s in self.waits if at_s > began_s)]
        return max(
            (later_s - at_s for at_s, later_s in pairwise(times_s) if at_s < ended_s), default=math.inf
        )


class LastingSubscriber(LastingClient):
    """Receives a filter at a QoS and keeps the promise of QoS 2: a packet id that is not released is not a new
    message."""

    def __init__(
        self,
        client_id: str,
        level: int,
        qos: int,
        topic_filter: str = "k",
        will: packets.Will | None = None,
    ) -> None:
        super().__init__(client_id, level, will)
        self._filter = topic_filter
        self.qos = qos
        self.received: list[bytes] = []
        self.subscribed = False
        self._held: set[int] = set()

    def begin(self, client: RawClient, present: bool) -> None:
        if not self.subscribed:
            client.send(packets.Subscribe(77, (packets.Request(self._filter, self.qos),)))

    def take(self, client: RawClient, packet: Packet) -> None:
        if isinstance(packet, Publish):
            if packet.qos < 2 or packet.packet_id not in self._held:
                self.received.append(packet.payload)
            if packet.qos == 1:
                client.send(Puback(packet.packet_id))
            elif packet.qos == 2:
                self._held.add(packet.packet_id)
                client.send(Pubrec(packet.packet_id))
        elif isinstance(packet, packets.Suback):
            self.subscribed = True
        elif isinstance(packet, Pubrel):
            self._held.discard(packet.packet_id)
            client.send(Pubcomp(packet.packet_id))
