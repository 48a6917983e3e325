"""Watched clients: for some minutes, kind, topic, size, QoS and reason of each packet of a client become events.

A watched client protocol has another class, which sees its packets on the usual path; so others pay nothing for it, and
the fast paths are left only by this one. Payloads are not recorded."""

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from mqtt_front.client_list import facts
from mqtt_front.codec import packets
from mqtt_front.codec.decode import decode_packet, packet_end
from mqtt_front.errors import MqttError
from mqtt_front.net.client_protocol import ClientProtocol, ProtocolServer
from mqtt_front.protocol.events import Acknowledgements, Event, Pings, Publishes
from mqtt_front.runtime.loop import Loop

EVENT = "watched"
PACKETS_PER_S = 200
"""Packets in one event; further ones are counted."""
CLIENT_COUNT = 16
"""Clients that are watched at a time."""
_STEP_S = 1.0
"""An event a second and client, if it had packets."""
_TOPIC_LENGTH = 200


class Watches:
    """The watched clients of a front. Event-loop thread only."""

    def __init__(self, loop: Loop, report: Callable[[str, Mapping[str, Any]], None]) -> None:
        self._loop = loop
        self._report = report
        self._by_link: dict[ClientProtocol, _Watch] = {}

    def begin(self, link: ClientProtocol, duration_s: float) -> None:
        """Watch a connected client from now on, or longer. Raises ValueError for one too many."""
        until_s = self._loop.time() + duration_s
        watch = self._by_link.get(link)
        if watch is not None:
            watch.until_s = until_s
            return
        if len(self._by_link) >= CLIENT_COUNT:
            raise ValueError(f"{CLIENT_COUNT} clients are watched, which is the limit")
        self._by_link[link] = watch = _Watch(link, until_s)
        kind: Any = type(link)
        link.__class__ = _watched_class(kind)
        link.read_by(-1)
        self._loop.call_later(_STEP_S, self._step, link, watch)

    def note(self, link: ClientProtocol, packet: Mapping[str, Any]) -> None:
        """Note a packet of a watched client."""
        watch = self._by_link[link]
        if len(watch.packets) < PACKETS_PER_S:
            watch.packets.append({"time_us": time.time_ns() // 1000, **packet})
        else:
            watch.left_out += 1

    def has_room(self, link: ClientProtocol) -> bool:
        """Return whether a further packet of this second is recorded, and not only counted."""
        return len(self._by_link[link].packets) < PACKETS_PER_S

    def _step(self, link: ClientProtocol, watch: "_Watch") -> None:
        """Report a second of packets."""
        if watch.packets:
            self._report(EVENT, {**watch.facts, "packets": watch.packets, "left_out": watch.left_out})
            watch.packets, watch.left_out = [], 0
        is_gone = link.transport is None
        if not is_gone and self._loop.time() < watch.until_s:
            self._loop.call_later(_STEP_S, self._step, link, watch)
            return
        del self._by_link[link]
        link.__class__ = watch.unwatched
        if not is_gone:
            link.read_by(watch.descriptor)


class _Watch:
    """What was seen of one client and is not reported yet."""

    __slots__ = ("descriptor", "facts", "left_out", "packets", "until_s", "unwatched")

    def __init__(self, link: ClientProtocol, until_s: float) -> None:
        self.facts = facts(link)
        self.unwatched = type(link)
        self.descriptor = link.descriptor
        self.until_s = until_s
        self.packets: list[Mapping[str, Any]] = []
        self.left_out = 0


class _WatchingServer(ProtocolServer, Protocol):
    """The server, as a watched client sees it."""

    watches: Watches


class _Watched(ClientProtocol):
    """Client protocol of a watched client."""

    broker: _WatchingServer

    __slots__ = ()

    def takes_fast_path(self) -> bool:
        return False

    def _take(self, events: Iterator[Event]) -> None:
        super()._take(self._seen(events))

    def _seen(self, events: Iterator[Event]) -> Iterator[Event]:
        watches = self.broker.watches
        for event in events:
            for packet in _received(event):
                watches.note(self, {"direction": "in", **packet})
            yield event

    def deliver(self, data: bytes, count: int = 0) -> None:
        at = 0
        while at < len(data):
            body = packet_end(data, at, len(data))
            if body is None:
                break
            packet = self._sent(data[at], data[slice(*body)]) if self.broker.watches.has_room(self) else {}
            self.broker.watches.note(self, {"direction": "out", **packet})
            at = body[1]
        super().deliver(data, count)

    def _sent(self, first: int, body: bytes) -> Mapping[str, Any]:
        kind = packets.PacketType(first >> 4).name
        try:
            packet = decode_packet(first, body, self.level)
        except MqttError:
            return {"kind": kind}
        if isinstance(packet, packets.Publish):
            return _publish(packet.topic, packet.qos, packet.retain, len(packet.payload))
        reason = getattr(packet, "reason", None)
        return {"kind": kind} if reason is None else {"kind": kind, "reason": int(reason)}


@functools.cache
def _watched_class(kind: Any) -> Any:
    """Return the class of a watched client whose class is `kind`: with the same layout, so that one can become the
    other."""
    return type(f"Watched{kind.__name__}", (_Watched, kind), {"__slots__": ()})


def _received(event: Event) -> Iterator[Mapping[str, Any]]:
    """Yield the packets of an event."""
    if isinstance(event, Publishes):
        for row in event.rows():
            topic = row.topic.decode("utf-8", "replace")
            yield _publish(topic, row.first >> 1 & 3, bool(row.first & 1), len(row.payload))
    elif isinstance(event, Acknowledgements):
        for _ in event.packet_ids:
            yield {"kind": event.kind.name, "reason": event.reason}
    elif isinstance(event, Pings):
        for _ in range(event.ping_count):
            yield {"kind": packets.PacketType.PINGREQ.name}
    elif isinstance(event, packets.Subscribe):
        for one in event.requests:
            yield {"kind": "SUBSCRIBE", "topic": one.topic_filter[:_TOPIC_LENGTH], "qos": one.qos}
    elif isinstance(event, packets.Unsubscribe):
        for topic_filter in event.topic_filters:
            yield {"kind": "UNSUBSCRIBE", "topic": topic_filter[:_TOPIC_LENGTH]}
    else:
        reason = getattr(event, "reason", None)
        kind = type(event).__name__.upper()
        yield {"kind": kind} if reason is None else {"kind": kind, "reason": int(reason)}


def _publish(topic: str, qos: int, is_retained: bool, payload_bytes: int) -> Mapping[str, Any]:
    return {
        "kind": "PUBLISH",
        "topic": topic[:_TOPIC_LENGTH],
        "qos": qos,
        "retain": is_retained,
        "payload_bytes": payload_bytes,
    }
