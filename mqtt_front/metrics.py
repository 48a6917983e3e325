"""Counters of a front under their names, each from the part that counts it."""

from typing import Protocol

from mqtt_front.net.client_protocol import ProtocolServer
from mqtt_front.net.connections import Connections
from mqtt_front.retained.keeper import Retaining
from mqtt_front.security.guard import Guard
from mqtt_front.sessions.session_store import Sessions
from mqtt_front.wills.wills import Wills
from timestone.metrics.metric import Kind, Metric, by_label, metric

RATES = ("client_publishes_per_s", "client_bytes_per_s")
"""Settings of the two rate limits of publishing, in order."""

LIMITS = (
    "connection_count", "connects_per_s", "connect_timeout_ms", "connect_bytes", "session_count",
    "session_bytes", "will_bytes", "packet_bytes",
    "receive_maximum", *RATES, "client_requests_per_s", "packet_filter_count", "client_topic_count",
    "topic_count", "topic_levels", "topic_bytes", "topic_alias_maximum", "subscription_count", "shared_count",
    "unsent_bytes", "total_unsent_bytes", "user_share_percent",
)  # fmt: skip
"""Limits that a client can exceed; each is counted. `topic_count` is a limit of the log."""

HELP: dict[str, tuple[Kind, str]] = {
    "connections": ("gauge", "Open connections."),
    "connections_accepted": ("counter", "Connections accepted."),
    "connections_refused": (
        "counter",
        "Connections that ended before the client was let in, by either side.",
    ),
    "sessions": ("gauge", "Sessions, with and without a connection."),
    "sessions_connected": ("gauge", "Sessions with a connection."),
    "sessions_connected_maximum": ("gauge", "Most sessions that were connected at a time since the start."),
    "sessions_away": ("gauge", "Sessions without a connection."),
    "session_bytes": ("gauge", "Bytes of sessions."),
    "will_bytes": ("gauge", "Bytes of wills."),
    "sessions_expired": ("counter", "Sessions that expired."),
    "publishes_received": ("counter", "Publishes from clients."),
    "publishes_dropped": ("counter", "Publishes that were refused or could not be stored."),
    "publishes_forbidden": ("counter", "Publishes to topics to which the client may not publish."),
    "logins_refused": ("counter", "Clients that failed to authenticate."),
    "logins_locked_out": ("counter", "Clients of these that were locked out after earlier failures."),
    "bytes_submitted": ("gauge", "Bytes of publishes that wait for the disk."),
    "bytes_unsent": ("gauge", "Bytes of deliveries that wait in memory for slow clients."),
    "shared_subscriptions": ("gauge", "Shared subscriptions and queues, each once for each log."),
    "retained": ("gauge", "Retained messages."),
    "retained_bytes": ("gauge", "Bytes of retained messages."),
    "retained_refused": ("counter", "Publishes that could not be retained, because of a limit."),
    "deliveries_sent": ("counter", "Messages sent to subscribers."),
    "deliveries_oversize": ("counter", "Messages skipped because they exceed what the client accepts."),
    "deliveries_expired": ("counter", "Messages skipped because their expiry interval has passed."),
    "offsets_lost_to_retention": ("counter", "Offsets that retention deleted before sessions received them."),
    "records_corrupt": ("counter", "Damaged records that deliveries skipped."),
    "packets_received": ("counter", "MQTT packets received."),
    "packets_sent": ("counter", "MQTT packets sent."),
    "bytes_received": ("counter", "Bytes of MQTT received."),
    "bytes_sent": ("counter", "Bytes of MQTT sent."),
}
"""Kind and meaning of each counter of `counters` but those of the limits, which are one metric."""


class Counted(ProtocolServer, Protocol):
    """The counting parts of a server. Implemented by `mqtt_front.broker.Broker`."""

    connections: Connections
    guard: Guard
    retaining: Retaining
    sessions: Sessions
    wills: Wills


def counters(broker: Counted) -> dict[str, int]:
    """Return the counters of a front by name."""
    counts = broker.delivery.counts
    return {
        "connections": broker.connections.count,
        "connections_accepted": broker.counts.accepted,
        "connections_refused": broker.counts.refused.total(),
        "sessions": len(broker.sessions),
        "sessions_connected": len(broker.sessions.connected),
        "sessions_connected_maximum": broker.sessions.connected_maximum,
        "sessions_away": len(broker.sessions) - len(broker.sessions.connected),
        "session_bytes": broker.sessions.use.sizes.total,
        "will_bytes": broker.wills.sizes.total,
        "sessions_expired": broker.sessions.expired_count,
        "publishes_received": broker.ingest.received_count,
        "publishes_dropped": broker.ingest.dropped.total(),
        "publishes_forbidden": broker.counts.forbidden,
        "logins_refused": broker.guard.counts.refused,
        "logins_locked_out": broker.guard.counts.locked_out,
        "bytes_submitted": broker.ingest.submitted_bytes,
        "bytes_unsent": broker.unsent.total_bytes,
        "shared_subscriptions": sum(group.has_place for group in broker.router.groups),
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


def metrics(broker: Counted) -> list[Metric]:
    """Return the metrics of a front."""
    counts, deliveries = broker.counts, broker.delivery.counts
    return [
        *(metric(name, *HELP[name], value) for name, value in counters(broker).items() if name in HELP),
        by_label(
            "over_limit",
            "Times that a client reached a limit.",
            "limit",
            {one: broker.over[one] for one in LIMITS},
        ),
        by_label("refused_connections", "Refused connections, by reason.", "reason", counts.refused),
        by_label("ended_connections", "Ended connections of clients, by reason.", "reason", counts.ended),
        by_label("dropped_publishes", "Dropped publishes, by reason.", "reason", broker.ingest.dropped),
        by_label("log_deliveries", "Messages sent to subscribers, by log.", "log", deliveries.by_log),
        metric("acknowledge_seconds", "histogram", _ACKNOWLEDGE, broker.ingest.answer_times),
        metric("deliver_seconds", "histogram", _DELIVER, deliveries.latency),
    ]


_ACKNOWLEDGE = "From the submission of a publish at QoS 1 or 2 until its answer is passed to the socket."
_DELIVER = "From when a message could be sent to a subscriber until it is passed to the socket."


def system_counters(broker: Counted) -> dict[str, int]:
    """Return the counters with those that require a look at every session."""
    connected = broker.sessions.connected.values()
    return counters(broker) | {
        "subscriptions": sum(len(session.subscriptions) for session in connected),
        "records": sum(log.end_offset - log.start_offset for log in broker.router.logs),
    }
