"""What operators and other parts of a server ask of a front, about the clients of all its parts: one, or in a cluster
one for each shard that its node leads."""

import heapq
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mqtt_front import client_list
from mqtt_front.broker import Broker
from mqtt_front.security.guard import Guard
from mqtt_front.sessions.session import session_key
from mqtt_front.settings import MqttSettings
from timestone.filters import is_wildcard
from timestone_access.identity import Identity

_UNSETTLED_S = 5.0
"""A publish that waits longer for the disk makes the front unready."""


class Administration:
    """Answers of a front. Event-loop thread only."""

    _settings: MqttSettings
    _door_guard: Guard | None
    """On a node of a cluster: what knows the users while no server runs, because other nodes lead."""

    @property
    def _brokers(self) -> list[Broker]:
        """Return the servers that run."""
        raise NotImplementedError

    def clients(self) -> Iterator[Mapping[str, Any]]:
        """Iterate over facts and figures of connected clients by connection number."""
        rows = [client_list.rows(broker.connections, broker.deadlines) for broker in self._brokers]
        return heapq.merge(*rows, key=operator.itemgetter("connection"))

    def disconnect(self, client: str, user: str | None) -> Sequence[Mapping[str, Any]]:
        """End the connections with a client id, of one user if `user` is given, with reason 0x98 at MQTT 5. Return
        their rows."""
        return [
            row
            for broker in self._brokers
            for row in client_list.disconnect(broker.connections, broker.deadlines.now, client, user)
        ]

    def end_session(self, client: str, user: str | None) -> Mapping[str, Any] | None:
        """End the session of a client for good; see `Operated`."""
        ended = (_end_session(broker, client, user) for broker in self._brokers)
        return next((one for one in ended if one is not None), None)

    def retained(self, topic: str) -> Mapping[str, Any] | None:
        """Return place and size of the retained message of a topic, if it has one."""
        broker = next(iter(self._brokers), None)
        found = None if broker is None else broker.retaining.find(topic)
        if found is None:
            return None
        log, message = found
        return {
            "log": log.name,
            "partition": log.partition,
            "offset": message.offset,
            "payload_bytes": len(message.payload),
        }

    def watch(self, client: str, user: str | None, duration_s: float) -> Sequence[Mapping[str, Any]]:
        """Report the packets of a connected client for some time. Raises ValueError."""
        return [row for one in self._brokers for row in _watch(one, client, user, duration_s)]

    @property
    def has_logins(self) -> bool:
        """Return whether clients have users."""
        return self._settings.knows_users

    @property
    def _guard(self) -> Guard | None:
        broker = next(iter(self._brokers), None)
        return self._door_guard if broker is None else broker.guard

    def may_read(self, user: str | None, topics: Sequence[str]) -> Sequence[bool]:
        """Return for each topic or topic filter whether the access rules let a user read all of it. Rules that a
        plug-in gives a client at its login are not known here: then the access file decides."""
        guard = self._guard
        if guard is None:
            return [False] * len(topics)
        permissions = guard.permissions(Identity(user), "")
        if permissions is None:
            return [True] * len(topics)
        return [
            permissions.may_read_all(topic) if is_wildcard(topic) else permissions.may_read(topic)
            for topic in topics
        ]

    def client(self, client: str, user: str | None) -> Mapping[str, Any] | None:
        """Return session and subscriptions of a connected client; None if it is not connected."""
        found = (client_list.session_of(broker.connections, client, user) for broker in self._brokers)
        return next((one for one in found if one is not None), None)


def slowness(brokers: Sequence[Broker]) -> str | None:
    """Return why publishes do not reach the disk in time; None if they do."""
    old_s = max((broker.ingest.oldest_s for broker in brokers), default=0.0)
    if old_s <= _UNSETTLED_S:
        return None
    return f"the oldest publish has waited {old_s:.1f} s for the disk, limit {_UNSETTLED_S:g} s"


def _end_session(broker: Broker, client_id: str, user: str | None) -> dict[str, Any] | None:
    found = client_list.links_of(broker.connections, client_id, user)
    for link in found:
        if link.session is not None:
            link.session.expiry_s = 0
    ended = client_list.disconnect(broker.connections, broker.deadlines.now, client_id, user)
    key = session_key(client_id, user)
    is_away = not found and key in broker.sessions
    if is_away:
        broker.sessions.discard(key)
        broker.wills.returned(key, session_continues=False)
    return {"disconnected": ended, "was_away": is_away} if found or is_away else None


def _watch(broker: Broker, client_id: str, user: str | None, duration_s: float) -> list[dict[str, Any]]:
    if broker.report is None:
        raise ValueError("this server records no events: metrics_interval_ms is 0")
    found = client_list.links_of(broker.connections, client_id, user)
    for link in found:
        broker.watches.begin(link, duration_s)
    return [client_list.row(link, broker.deadlines.now) for link in found]
