"""What a front has counted, for whoever monitors it: each figure from the part that counts it, under one name."""

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from mqtt_front.delivery.delivery import Delivery
from mqtt_front.ingest.ingest import Ingest
from mqtt_front.ingest.routing import Router
from mqtt_front.net.outbound_limit import Unsent
from mqtt_front.retained.keeper import Retaining
from mqtt_front.security.guard import Guard
from mqtt_front.sessions.session_store import Sessions

RATES = ("client_publishes_per_s", "client_bytes_per_s")
"""The settings of the two allowances to publish, in their order."""

LIMITS = (
    "connection_count", "connects_per_s", "connect_timeout_ms", "connect_bytes", "session_count", "packet_bytes",
    "receive_maximum", *RATES, "client_requests_per_s", "packet_filter_count", "client_topic_count",
    "topic_count", "topic_levels", "topic_bytes", "topic_alias_maximum", "subscription_count", "shared_count",
    "unsent_bytes", "total_unsent_bytes", "user_share_percent",
)  # fmt: skip
"""The settings that a client can come up against; each is counted. `topic_count` is one of the log."""

GAUGES = frozenset({
    "connections", "sessions", "sessions_connected", "sessions_connected_maximum", "sessions_away",
    "bytes_submitted", "bytes_unsent", "shared_subscriptions", "retained", "retained_bytes",
})  # fmt: skip
"""What is there now. All others say how often something has happened since the start, and only grow."""


@dataclass(slots=True)
class Counts:
    """What happened to connections."""

    accepted: int = 0
    refused: int = 0
    forbidden: int = 0
    """Publishes to topics where their client may not publish."""
    packets_received: int = 0
    packets_sent: int = 0
    """Without deliveries, which are counted where they are made."""
    bytes_received: int = 0
    bytes_sent: int = 0


class Counted(Protocol):
    """The parts of a server that count. Implemented by `mqtt_front.broker.Broker`."""

    counts: Counts
    delivery: Delivery
    guard: Guard
    ingest: Ingest
    retaining: Retaining
    router: Router
    sessions: Sessions
    unsent: Unsent
    over: Counter[str]

    @property
    def linked_count(self) -> int: ...


def counters(broker: Counted) -> dict[str, int]:
    """The counters of a front, by name."""
    counts = broker.delivery.counts
    return {
        "connections": broker.linked_count,
        "connections_accepted": broker.counts.accepted,
        "connections_refused": broker.counts.refused,
        "sessions": len(broker.sessions),
        "sessions_connected": len(broker.sessions.connected),
        "sessions_connected_maximum": broker.sessions.connected_maximum,
        "sessions_away": len(broker.sessions) - len(broker.sessions.connected),
        "sessions_expired": broker.sessions.expired_count,
        "publishes_received": broker.ingest.received_count,
        "publishes_dropped": broker.ingest.dropped_count,
        "publishes_forbidden": broker.counts.forbidden,
        "logins_refused": broker.guard.counts.refused,
        "logins_locked_out": broker.guard.counts.locked_out,
        "bytes_submitted": broker.ingest.submitted_bytes,
        "bytes_unsent": broker.unsent.total_bytes,
        "shared_subscriptions": len(broker.router.groups),
        "retained": broker.retaining.count,
        "retained_bytes": broker.retaining.size_bytes,
        "retained_refused": broker.retaining.refused_count,
        "deliveries_sent": counts.delivered,
        "deliveries_oversize": counts.oversize,
        "deliveries_expired": counts.expired,
        "offsets_lost_to_retention": counts.gap,
        "records_corrupt": counts.corrupt,
        "packets_received": broker.counts.packets_received + broker.ingest.gathered_count,
        "packets_sent": broker.counts.packets_sent + counts.delivered,
        "bytes_received": broker.counts.bytes_received,
        "bytes_sent": broker.counts.bytes_sent,
        **{f"over_{limit}": broker.over[limit] for limit in LIMITS},
    }


def system_counters(broker: Counted) -> dict[str, int]:
    """The same, and those that cost a look at every session."""
    connected = broker.sessions.connected.values()
    return counters(broker) | {
        "subscriptions": sum(len(session.subscriptions) for session in connected),
        "records": sum(log.end_offset - log.start_offset for log in broker.router.logs),
    }
