"""A session as bytes: how it is kept while its client is away and across restarts of the server.

Layout (little endian): magic "TSES", version u8, three zero bytes, expiry u32 (seconds), ended f64 (seconds of the
store, see `PassingTime.kept_s`; 0 when the client was connected), then a JSON object. What is needed to expire a
session stands in front, so that a million of them can be loaded without parsing each.
"""

import json
import math
import struct
from collections.abc import Callable, Container, Iterable
from typing import Any, NamedTuple

from mqtt_front.feeds.feed import Feed, LogSource
from mqtt_front.feeds.retained_feed import RetainedFeed
from mqtt_front.feeds.shared_feed import SharedFeed
from mqtt_front.feeds.stream_feed import StreamFeed
from mqtt_front.feeds.subscription import Subscription
from mqtt_front.protocol.packet_ids import PACKET_ID_MAX
from mqtt_front.sessions.qos2_receipts import Receipts
from mqtt_front.sessions.session import InFlight, Session
from mqtt_front.topics.filter_form import parse_filter
from timestone.disk.json_document import integer, integers, json_object
from timestone.errors import TimestoneError

VERSION = 4
_READABLE = (1, 2, 3, 4)
"""Version 1 has only feeds of whole logs. Up to version 2 a feed of retained messages has one filter; up to version
3 no feed has `sent_below`."""
NEVER_S = 0xFFFFFFFF
_MAGIC = b"TSES"
_HEADER = struct.Struct("<4sB3xId")
assert _HEADER.size == 20
_quoted = json.encoder.encode_basestring_ascii
_BOOLEANS = ("false", "true")
_FEW_SUBSCRIPTIONS = 8
_SUBSCRIPTION_IDENTIFIER_MAX = 268_435_455


class UndecodableSession(TimestoneError):
    """The document is invalid or of a newer version. It is left as it is, and its client gets a new session."""


class Lifetime(NamedTuple):
    """Expiry of a stored session."""

    expiry_s: int
    ended_s: float

    def left_s(self, now_s: float) -> float | None:
        """Return the seconds left at this time of the store; None if it never expires. At most the whole lifetime,
        because an older version noted a time since 1970. A session that was connected at the end of the server has
        the whole."""
        if self.expiry_s == NEVER_S:
            return None
        return min(0.0, self.ended_s - now_s) + self.expiry_s if self.ended_s else self.expiry_s


def encode_session(session: Session, ended_s: float, receipts: Receipts) -> bytes:
    """Encode a session whose client left at `ended_s`; 0 while it is connected."""
    body = {
        "logs": _feed_states(session),
        "last_packet_id": session.packet_ids.last,
        "released": list(session.released),
        "received": sorted(session.received - session.unsettled),
        "unsettled": sorted(session.unsettled),
        "settled": dict(receipts.settled),
        "run": receipts.run_id,
    }
    subscriptions = ",".join(_subscription_texts(session))
    rest = json.dumps(body, separators=(",", ":"))
    return (
        _HEADER.pack(_MAGIC, VERSION, session.expiry_s, ended_s)
        + f'{{"subscriptions":[{subscriptions}],{rest[1:]}'.encode()
    )


def _subscription_texts(session: Session) -> Iterable[str]:
    """Yield the subscriptions as JSON. There may be thousands, written whenever one changes or an offset moves: only
    changed ones are encoded."""
    subscriptions, known = session.subscriptions, session.documented_subscriptions
    if len(subscriptions) <= _FEW_SUBSCRIPTIONS:
        return map(_subscription_text, subscriptions.values())
    for topic_filter in subscriptions.keys() - known.keys():
        known[topic_filter] = _subscription_text(subscriptions[topic_filter])
    return known.values()


def _subscription_text(one: Subscription) -> str:
    """Encode a subscription as JSON in a fifth of the time of `json.dumps`."""
    since = ",".join([f"{_quoted(key)}:{offset}" for key, offset in one.since.items()])
    identifier = "null" if one.identifier is None else one.identifier
    return (
        f'{{"filter":{_quoted(one.topic_filter)},"qos":{one.qos},"no_local":{_BOOLEANS[one.no_local]},'
        f'"retain_as_published":{_BOOLEANS[one.retain_as_published]},"identifier":{identifier},"since":{{{since}}}}}'
    )


def _feed_states(session: Session) -> dict[str, Any]:
    """Return the state of each feed by key."""
    in_flight: dict[Feed, list[list[int]]] = {}
    for packet_id, entry in session.in_flight.items():
        if entry.qos == 2 or not isinstance(entry.feed, SharedFeed):
            in_flight.setdefault(entry.feed, []).append([packet_id, entry.offset, entry.qos])
    return {
        key: _feed_state(feed, in_flight.get(feed, []))
        for key, feed in session.feeds.items()
        if not feed.idle
    }


def _feed_state(feed: Feed, in_flight: list[list[int]]) -> dict[str, Any]:
    state = {"id": feed.log.id, "seen": feed.window.seen, "in_flight": in_flight}
    if feed.key != feed.log.key:
        state["log"] = feed.log.key
    if feed.sent_below > feed.window.seen and not isinstance(feed, SharedFeed):
        state["sent_below"] = feed.sent_below
    if isinstance(feed, SharedFeed):
        state["shared"] = feed.group.topic_filter
    if isinstance(feed, StreamFeed):
        state |= {"stream": feed.topic_filter} | ({} if feed.gap is None else {"gap": feed.gap})
    if isinstance(feed, RetainedFeed):
        state |= {"retained": list(feed.subscriptions), "until": feed.until}
    return state


def session_lifetime(document: bytes) -> Lifetime:
    """Decode the lifetime. Raises UndecodableSession."""
    if len(document) < _HEADER.size:
        raise UndecodableSession(f"invalid session document: {len(document)} bytes")
    magic, version, expiry_s, ended_s = _HEADER.unpack_from(document)
    if magic != _MAGIC or version not in _READABLE:
        raise UndecodableSession(
            f"a session document of version {version}; this server reads versions up to {VERSION}"
        )
    if not math.isfinite(ended_s):
        raise UndecodableSession(f"invalid session document: its session ended {ended_s} s after 1970")
    return Lifetime(expiry_s, ended_s)


def describe_session(session_key: str, document: bytes) -> dict[str, Any]:
    """Return a stored session as plain values, as `client_list.details` has those of a connected client, for programs
    that read a store without its server. Raises UndecodableSession."""
    lifetime = session_lifetime(document)
    client_id, _, user = session_key.partition("\0")
    try:
        body = _checked(json_object(document[_HEADER.size :]))
        logs: dict[str, Any] = body["logs"]
        return {
            "client": client_id,
            "user": user or None,
            "expiry_s": None if lifetime.expiry_s == NEVER_S else lifetime.expiry_s,
            "ended_s": lifetime.ended_s,
            "in_flight": [packet_id for state in logs.values() for packet_id, _, _ in state["in_flight"]],
            "subscriptions": [
                {
                    "filter": one["filter"],
                    "qos": one["qos"],
                    "feeds": [
                        {"log": logs[key].get("log", key), "partition": 0, "offset": logs[key]["seen"]}
                        for key in one["since"]
                        if key in logs
                    ],
                }
                for one in body["subscriptions"]
            ],
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UndecodableSession(f"invalid session document: {error!r:.300}") from error


def decode_session(
    session_key: str,
    document: bytes,
    source: Callable[[str], LogSource | None],
    sources: Callable[[str], Iterable[LogSource]],
    receipts: Receipts,
) -> Session:
    """Decode a session. source: returns a log by name; sources: the logs that a topic filter covers.

    State of a log that does not exist any more is dropped. A log of the same name with another identity is read from
    its start, because none of it can have been delivered. Raises UndecodableSession."""
    lifetime = session_lifetime(document)
    try:
        body = _checked(json_object(document[_HEADER.size :]))
        session = Session(session_key, lifetime.expiry_s, body["last_packet_id"])
        session.documented = True
        session.released = dict.fromkeys(body["released"])
        session.received = set(body["received"])
        if body["run"] == receipts.run_id:
            session.unsettled = set(body["unsettled"])
            session.received |= session.unsettled
        else:
            session.received |= receipts.found(session_key, body["settled"])
        wanted = {one["filter"] for one in body["subscriptions"]}
        for key, state in body["logs"].items():
            if (found := source(state.get("log", key))) is not None:
                _restore_feed(session, key, found, state, wanted)
        session.restore([_subscription(one, session) for one in body["subscriptions"]], sources)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UndecodableSession(f"invalid session document: {error!r:.300}") from error
    return session


def after_restart(session_key: str, document: bytes, receipts: Receipts, now_s: float) -> bytes:
    """Return the document of an earlier process, completed with what that could not know; unchanged if that is nothing
    or the document is invalid.

    Packet ids found in the logs are received. A client that was connected when the server died has left at `now_s`,
    because its time would begin again with each restart otherwise; all records that exist now may have been sent to
    it."""
    try:
        lifetime = session_lifetime(document)
        if lifetime.ended_s and not receipts.has_found(session_key):
            return document
        body = json_object(document[_HEADER.size :])
        if found := receipts.found(session_key, body["settled"]):
            body |= {"received": sorted({*body["received"], *found}), "settled": dict(receipts.settled)}
        elif lifetime.ended_s:
            return document
        if not lifetime.ended_s:
            for key, state in body["logs"].items():
                end = receipts.settled.get(state.get("log", key), 0)
                if end > state["seen"]:
                    state["sent_below"] = end
    except (UndecodableSession, ValueError, KeyError, TypeError, AttributeError):
        return document
    header = _HEADER.pack(_MAGIC, VERSION, lifetime.expiry_s, lifetime.ended_s or now_s)
    return header + json.dumps(body, separators=(",", ":")).encode()


def _checked(body: dict[str, Any]) -> dict[str, Any]:
    """Return the object if each value has the type that `encode_session` writes; otherwise the error would occur
    much later, on a connection. Raises ValueError, KeyError, TypeError, AttributeError."""
    integer(body["last_packet_id"], 0, PACKET_ID_MAX)
    for name in ("released", "received", "unsettled"):
        integers(body[name], 1, PACKET_ID_MAX)
    integers([*body["settled"].values()])
    for one in body["subscriptions"]:
        parse_filter(_text(one["filter"]))
        integer(one["qos"], 0, 2)
        for name in ("no_local", "retain_as_published"):
            if type(one[name]) is not bool:
                raise TypeError(f"{name} is {one[name]!r:.40}")
        if one["identifier"] is not None:
            integer(one["identifier"], 1, _SUBSCRIPTION_IDENTIFIER_MAX)
        integers([*one["since"].values()])
    for state in body["logs"].values():
        integer(state["seen"])
        integer(state.get("sent_below", 0))
        for packet_id, offset, qos in state["in_flight"]:
            integer(packet_id, 1, PACKET_ID_MAX)
            integer(offset)
            integer(qos, 1, 2)
        for name in ("log", "stream", "shared"):
            _text(state.get(name, ""))
        if state.get("gap") is not None:
            integer(state["gap"])
        if "retained" in state:
            integer(state["until"])
            for topic_filter in _filters(state["retained"]):
                _text(topic_filter)
    return body


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {value!r:.40}")
    return value


def _filters(retained: Any) -> list[str]:
    """Return the filters of a feed of retained messages: up to version 2 it has one. Raises TypeError."""
    if isinstance(retained, list):
        return retained
    return [_text(retained)]


def _restore_feed(
    session: Session, key: str, source: LogSource, state: dict[str, Any], wanted: Container[str]
) -> None:
    log, seen = source.log, state["seen"]
    same = state["id"] == log.id
    entries = state["in_flight"] if same else []
    in_flight = [offset for _, offset, _ in entries]
    feed: Feed
    if "stream" in state and state["stream"] in wanted:
        feed = StreamFeed(session, source, state["stream"], seen if same else log.start_offset, in_flight)
        feed.gap = state.get("gap") if same else log.start_offset
    elif not same:
        if key == log.key:
            session.feeds[key] = Feed(session, source, log.start_offset)
        return
    elif "shared" in state and state["shared"] in wanted:
        feed = SharedFeed(session, source, state["shared"], in_flight)
    elif "shared" in state:
        feed = Feed(session, source, max(in_flight, default=-1) + 1, in_flight, key)
    elif "retained" in state:
        until, filters = state["until"], _filters(state["retained"])
        feed = RetainedFeed(session, source, key, filters, until=until, seen=seen, in_flight=in_flight)
    else:
        feed = Feed(session, source, seen, in_flight, key)
    session.feeds[key] = feed
    if same:
        feed.sent_below = state.get("sent_below", 0)
    for packet_id, offset, qos in entries:
        session.in_flight[packet_id] = InFlight(feed, offset, qos)


def _subscription(state: dict[str, Any], session: Session) -> Subscription:
    since = {name: offset for name, offset in state["since"].items() if name in session.feeds}
    return Subscription(
        state["filter"],
        state["qos"],
        state["no_local"],
        state["retain_as_published"],
        state["identifier"],
        since,
    )
