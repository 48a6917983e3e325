"""Connected clients of a front, for an operator: a row of facts and figures for each, and the end of a connection."""

import itertools
from collections.abc import Iterator
from typing import Any

from mqtt_front.codec.packets import MQTT_3_1, MQTT_3_1_1, MQTT_5
from mqtt_front.feeds.feed import Feed, FeedState
from mqtt_front.feeds.subscription import Subscription
from mqtt_front.net.client_protocol import ClientProtocol
from mqtt_front.net.connections import Connections
from mqtt_front.reasons import Reason
from mqtt_front.runtime.timer_wheel import TICK_S, TimerWheel
from mqtt_front.sessions.session import Session

_LEVELS = {MQTT_3_1: "3.1", MQTT_3_1_1: "3.1.1", MQTT_5: "5"}
_NEVER_S = 0xFFFFFFFF
_DETAILS_COUNT = 1000
_KICKED = "disconnected by an operator"


def rows(connections: Connections, deadlines: TimerWheel) -> Iterator[dict[str, Any]]:
    """Yield facts and figures of the clients that are connected now, by connection number. The event loop may run
    between two of them."""
    for link in list(connections.links):
        if _is_client(link):
            yield row(link, deadlines.now)


def disconnect(connections: Connections, now: int, client_id: str, user: str | None) -> list[dict[str, Any]]:
    """End the connections with a client id, at MQTT 5 with reason 0x98, and return their rows. user: only that of this
    user; two users may use the same id. The sessions stay; wills are published as after any other end by the server."""
    found = links_of(connections, client_id, user)
    ended = [row(link, now) for link in found]
    for link in found:
        link.end(Reason.ADMINISTRATIVE_ACTION, _KICKED)
    return ended


def links_of(connections: Connections, client_id: str, user: str | None) -> list[ClientProtocol]:
    """Return the connected clients with an id, of one user if `user` is given."""
    found = [link for link in connections.links if link.client_id == client_id and _is_client(link)]
    if user is None:
        return found
    return [link for link in found if link.identity is not None and link.identity.user == user]


def session_of(connections: Connections, client_id: str, user: str | None) -> dict[str, Any] | None:
    """Return the session of a connected client, ready for JSON, with its first 1,000 subscriptions and packet ids."""
    for link in links_of(connections, client_id, user):
        session = link.session
        assert session is not None
        return {
            "connection": link.number,
            "expiry_s": None if session.expiry_s == _NEVER_S else session.expiry_s,
            "receive_maximum": link.inflight_limit,
            "in_flight": list(itertools.islice(session.in_flight, _DETAILS_COUNT)),
            "subscription_count": len(session.subscriptions),
            "subscriptions": [
                _subscription(session, one)
                for one in itertools.islice(session.subscriptions.values(), _DETAILS_COUNT)
            ],
        }
    return None


def _subscription(session: Session, one: Subscription) -> dict[str, Any]:
    """Return a subscription with the place of each feed that reads for it."""
    feeds = [session.feeds[key] for key in one.since if key in session.feeds]
    return {
        "filter": one.topic_filter,
        "qos": one.qos,
        "feeds": [
            {
                "log": feed.log.name,
                "partition": feed.log.partition,
                "offset": feed.log.end_offset if feed.reader is None else feed.reader.offset,
                "committed_offset": feed.window.committed,
                "end_offset": feed.log.end_offset,
                "lag": _lag(feed),
            }
            for feed in feeds
        ],
    }


def facts(link: ClientProtocol) -> dict[str, Any]:
    """Return the facts of a client that stay the same while it is connected."""
    return {
        "connection": link.number,
        "client": link.client_id,
        "user": None if link.identity is None else link.identity.user,
        "address": link.peer,
        "transport": link.protocol,
        "mqtt": _LEVELS[link.level],
        "connected_us": link.began_us,
    }


def _is_client(link: ClientProtocol) -> bool:
    return link.connected and not link.closing and link.session is not None


def row(link: ClientProtocol, now: int) -> dict[str, Any]:
    """Return facts and figures of a connected client. now: the tick."""
    session = link.session
    assert session is not None
    return {
        **facts(link),
        "idle_s": int((now - link.last_seen) * TICK_S),
        "subscriptions": len(session.subscriptions),
        **link.traffic._asdict(),
        "in_flight": session.outstanding,
        "in_flight_limit": link.inflight_limit,
        "lag": sum(map(_lag, session.feeds.values())),
        "unsent_bytes": link.unsent_bytes,
        "submitted_bytes": link.submitted_bytes,
        # Asked first: to find out what a flag of none consists of takes as long as half of a row.
        "held": [hold.name.lower() for hold in link.holds if hold.name is not None] if link.holds else [],
    }


def _lag(feed: Feed) -> int:
    """Return the offsets of a log that the client has not been sent yet, of any topic; 0 while it waits for more."""
    reader = feed.reader
    if reader is None or feed.state is FeedState.PARKED:
        return 0
    return max(0, feed.log.end_offset - reader.offset)
