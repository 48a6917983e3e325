"""What an operator can have a front do: publish, end sessions, watch clients. Event-loop thread only."""

from collections.abc import Callable, Mapping
from typing import Any

from mqtt_front import client_list
from mqtt_front.broker import Broker
from mqtt_front.errors import MqttError
from mqtt_front.handlers.publish import publish_own
from mqtt_front.sessions.session import session_key


def publish(
    broker: Broker, topic: str, payload: bytes, qos: int, done: Callable[[bool], None], *, retain: bool
) -> None:
    """Publish a message of the server. done: called with whether it is stored. Raises ValueError if it is refused."""
    limit = broker.settings.packet_bytes
    if len(payload) > limit:
        raise ValueError(
            f"invalid payload: expected at most {limit} bytes (packet_bytes), got {len(payload)}"
        )
    try:
        publish_own(broker, topic, payload, qos, done, retain=retain)
    except MqttError as error:
        raise ValueError(str(error)) from None


def end_session(broker: Broker, client_id: str, user: str | None) -> dict[str, Any] | None:
    """End the session of a client for good, and its connection if it has one; see `Operated.end_session`."""
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


def retained(broker: Broker, topic: str) -> Mapping[str, Any] | None:
    """Return the place and size of the retained message of a topic, if it has one."""
    found = broker.retaining.find(topic)
    if found is None:
        return None
    log, message = found
    return {
        "log": log.name,
        "partition": log.partition,
        "offset": message.offset,
        "payload_bytes": len(message.payload),
    }


def watch(broker: Broker, client_id: str, user: str | None, duration_s: float) -> list[dict[str, Any]]:
    """Watch the connections of a client for some time, and return their rows. Raises ValueError."""
    if broker.report is None:
        raise ValueError("this server records no events: metrics_interval_ms is 0")
    found = client_list.links_of(broker.connections, client_id, user)
    for link in found:
        broker.watches.begin(link, duration_s)
    return [client_list.row(link, broker.deadlines.now) for link in found]
