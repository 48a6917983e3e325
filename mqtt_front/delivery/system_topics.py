"""Statistics of the server below `$SYS`: the topics of mosquitto where they apply, and every counter below
`$SYS/broker/timestone/`.

The messages are made for subscribers and stored in no log. A new subscription gets all values at once, with RETAIN;
after each interval it gets those that changed. Without a subscriber no message is made."""

import time
from collections.abc import Callable, Iterable, Mapping

from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.packets import Publish
from mqtt_front.codec.properties import Properties
from mqtt_front.runtime.system_load import Load
from mqtt_front.sessions.session import Session
from timestone.filters import topic_matches

ROOT = "$SYS"
_BROKER = "$SYS/broker/"
# Names of mosquitto, and the counters they show.
_COUNTERS = {
    "clients/connected": "sessions_connected",
    "clients/disconnected": "sessions_away",
    "clients/total": "sessions",
    "clients/maximum": "sessions_connected_maximum",
    "clients/expired": "sessions_expired",
    "messages/received": "packets_received",
    "messages/sent": "packets_sent",
    "publish/messages/received": "publishes_received",
    "publish/messages/sent": "deliveries_sent",
    "publish/messages/dropped": "publishes_dropped",
    "bytes/received": "bytes_received",
    "bytes/sent": "bytes_sent",
    "retained messages/count": "retained",
    "subscriptions/count": "subscriptions",
    "store/messages/count": "records",
}
_LOADS = {
    "messages/received": "packets_received",
    "messages/sent": "packets_sent",
    "publish/received": "publishes_received",
    "publish/sent": "deliveries_sent",
    "publish/dropped": "publishes_dropped",
    "bytes/received": "bytes_received",
    "bytes/sent": "bytes_sent",
    "connections": "connections_accepted",
}


class SystemTopics:
    """Values of `$SYS` and their delivery to subscribed sessions. Event-loop thread only."""

    def __init__(
        self,
        counters: Callable[[], Mapping[str, int]],
        version: str,
        interval_s: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """counters: read every `interval_s`; 0 turns these topics off."""
        self._counters = counters
        self._version = version
        self._interval_s = interval_s
        self._clock = clock
        self._started_s = self._told_s = clock()
        self._load = Load(list(_LOADS.values()), max(1, interval_s))
        self._told: dict[str, str] = {}

    def values(self) -> dict[str, str]:
        """Return all current values by topic."""
        counters = self._counters()
        uptime_s = int(self._clock() - self._started_s)
        values = {"version": f"timestone {self._version}", "uptime": f"{uptime_s} seconds"}
        values |= {name: str(counters[counter]) for name, counter in _COUNTERS.items()}
        averages = self._load.values()
        values |= {
            f"load/{name}/{window}min": f"{average:.2f}"
            for name, counter in _LOADS.items()
            for (counted, window), average in averages.items()
            if counted == counter
        }
        values |= {f"timestone/{name}": str(count) for name, count in counters.items()}
        return {_BROKER + name: value for name, value in values.items()}

    def greet(self, session: Session, topic_filter: str) -> None:
        """Send the current values to a session that has subscribed to a filter below `$SYS`."""
        if self._interval_s:
            self._tell(session, self.values(), (topic_filter,), retain=True)

    def tick(self, sessions: Iterable[Session]) -> None:
        """Send changed values to subscribers when the interval is over."""
        now = self._clock()
        if not self._interval_s or now < self._told_s + self._interval_s:
            return
        self._told_s = now
        self._load.feed(self._counters())
        listening = [session for session in sessions if session.system_filters]
        if not listening:
            self._told = {}
            return
        values = self.values()
        changed = {topic: value for topic, value in values.items() if self._told.get(topic) != value}
        self._told = values
        for session in listening:
            self._tell(session, changed, session.system_filters, retain=False)

    def _tell(
        self, session: Session, values: Mapping[str, str], filters: tuple[str, ...], *, retain: bool
    ) -> None:
        """Send values that the client may read and has subscribed to, at QoS 0: they are outdated at once."""
        client, permissions = session.client, session.permissions
        if client is None or not client.writable:
            return
        packets = []
        for topic, value in values.items():
            matching = [one for one in filters if topic_matches(one, topic)]
            if not matching or (permissions is not None and not permissions.may_read(topic)):
                continue
            subscribed = [session.subscriptions[one] for one in matching if one in session.subscriptions]
            identifiers = tuple(one.identifier for one in subscribed if one.identifier is not None)
            properties = Properties(subscription_identifiers=identifiers)
            message = Publish(topic, value.encode(), 0, retain, properties=properties)
            packet = encode_packet(message, client.target.level)
            if len(packet) <= client.target.packet_bytes:
                packets.append(packet)
        client.deliver(b"".join(packets))
