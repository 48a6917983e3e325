"""Connected clients: a table that is searched and sorted here, one client, and its history."""

import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec

from timestone.errors import CorruptRecord, OffsetOutOfRange, UnknownLog
from timestone.metrics.records import (
    ACTIONS_TOPIC,
    EVENT_TOPICS,
    EVENTS_LOG,
    HOUR,
    HOUR_TOPIC,
    TRACE,
    TRACES_TOPIC,
    TRAFFIC,
    TRAFFIC_TOPIC,
    decode_event,
)
from timestone.reading.topic_mask import TopicMask
from timestone.view import LogView

from ..http.sessions import Session
from ..problems import NoServer, Problem
from ..reading.client_table import COUNTERS, Row
from ..reading.reader_lags import time_at
from ..reading.record_search import SEARCH_S
from ..sources import Sources

PAGE_MOST = 500
_COUNTER_OF = {rate: counter for counter, rate in COUNTERS.items()}
_EVENTS_STEP = 4096
_DETAILS_COUNT = 1000
_READ_BYTES = 4 << 20
Text = Annotated[str, msgspec.Meta(max_length=1000)]
Order = Literal[
    "messages",
    "publishes_in_per_s",
    "deliveries_out_per_s",
    "bytes_in_per_s",
    "bytes_out_per_s",
    "refused_per_s",
    "publishes_received",
    "deliveries_sent",
    "publishes_refused",
    "lag",
    "unsent_bytes",
    "in_flight",
    "idle_s",
    "connected_us",
    "client",
]


class ClientsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which clients, in which order."""

    prefix: Annotated[Text, msgspec.Meta(description="beginning of the client id")] = ""
    text: Annotated[Text, msgspec.Meta(description="part of the client id, user or address")] = ""
    user: Text | None = None
    held: Annotated[bool, msgspec.Meta(description="only clients that the server does not read from now")] = (
        False
    )
    refused: Annotated[bool, msgspec.Meta(description="only clients with refused publishes")] = False
    lag_above: Annotated[int, msgspec.Meta(ge=0)] | None = None
    silent_for: Annotated[
        Annotated[float, msgspec.Meta(ge=0)] | None,
        msgspec.Meta(description="seconds without anything from it"),
    ] = None
    sort: Order = "messages"
    descending: bool = True
    after: Annotated[int, msgspec.Meta(ge=0, description="`next` of the page before")] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MOST)] = 100


class ClientRow(msgspec.Struct, frozen=True, kw_only=True):
    """Connected client. Counts are those of this connection; rates are null at the first look.

    held: why the server does not read from it: `undecided` (its login), `unsettled` (the disk, or the turn of others),
    `unread` (it does not read its answers)."""

    front: str
    connection: int
    client: str
    user: str | None
    address: str
    transport: str
    mqtt: str
    connected_us: int
    idle_s: float
    subscriptions: int
    publishes_received: int
    deliveries_sent: int
    bytes_received: int
    bytes_sent: int
    packets_received: int
    packets_sent: int
    publishes_refused: int
    publishes_in_per_s: float | None
    deliveries_out_per_s: float | None
    bytes_in_per_s: float | None
    bytes_out_per_s: float | None
    refused_per_s: float | None
    in_flight: int
    in_flight_limit: int
    lag: int
    lag_s: float | None = None
    unsent_bytes: int
    submitted_bytes: int
    held: list[str]


class Clients(msgspec.Struct, frozen=True, kw_only=True):
    """Page of clients. total: connected; matched: of these as asked."""

    now_us: int
    total: int
    matched: int
    clients: list[ClientRow]
    next: int | None


def clients(sources: Sources, session: Session, query: ClientsQuery) -> Clients:
    """Return connected clients."""
    look = _look(sources)
    found = [row for row in look.rows if _matches(row, query)]
    found.sort(key=lambda row: _order(row, query.sort), reverse=query.descending)
    page = found[query.after : query.after + query.limit]
    end = query.after + len(page)
    return Clients(
        now_us=look.now_us,
        total=len(look.rows),
        matched=len(found),
        clients=[client_row(row) for row in page],
        next=end if end < len(found) else None,
    )


def _look(sources: Sources) -> Any:
    try:
        return sources.clients.rows()
    except NoServer as error:
        raise Problem("no-server", str(error)) from None


def client_row(row: Row) -> ClientRow:
    """Return a row of the table as a reply."""
    return msgspec.convert(row, ClientRow)


def _matches(row: Row, query: ClientsQuery) -> bool:
    user = row["user"] or ""
    return (
        row["client"].startswith(query.prefix)
        and (not query.text or any(query.text in one for one in (row["client"], user, row["address"])))
        and (query.user is None or query.user == user)
        and (not query.held or bool(row["held"]))
        and (not query.refused or row["publishes_refused"] > 0)
        and (query.lag_above is None or row["lag"] > query.lag_above)
        and (query.silent_for is None or row["idle_s"] >= query.silent_for)
    )


def _order(row: Row, name: str) -> tuple[Any, int]:
    if name == "messages":
        rates = (row["publishes_in_per_s"] or 0.0) + (row["deliveries_out_per_s"] or 0.0)
        return (rates, row["publishes_received"] + row["deliveries_sent"]), row["connection"]
    value = row[name]
    if name in _COUNTER_OF:  # equal or unknown rates: the larger count of the connection
        return (value or 0.0, row[_COUNTER_OF[name]]), row["connection"]
    return ("" if name == "client" else 0.0) if value is None else value, row["connection"]


class ClientQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A client: ids are parameters, because they have any characters."""

    id: Annotated[str, msgspec.Meta(max_length=65_535)]
    user: Text | None = None


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """Subscription of a client, and how far its delivery is in a log. log: null for a subscription of no log yet."""

    filter: str
    qos: int
    log: str | None = None
    partition: int | None = None
    offset: int | None = None
    committed_offset: int | None = None
    end_offset: int | None = None
    lag: int | None = None
    lag_s: float | None = None


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """Session of a client. expiry_s: null for one that does not expire; away_s: null while it is connected, and for one
    that was when its server was killed; receive_maximum: null without a connection."""

    is_connected: bool
    expiry_s: int | None
    away_s: float | None = None
    receive_maximum: int | None = None
    in_flight: list[int]
    """Packet ids of messages that it has not acknowledged, the first 1,000."""


class OneClient(msgspec.Struct, frozen=True, kw_only=True):
    """Client: its connection and its session, each null if it has none; its subscriptions."""

    id: str
    connection: ClientRow | None
    session: SessionState | None
    subscription_count: int
    subscriptions: list[Subscription]
    """One for each log that it reads from; of the first 1,000."""


def client(sources: Sources, session: Session, query: ClientQuery) -> OneClient:
    """Return one client: connection, session, subscriptions; of one that is away, its stored session."""
    try:
        rows = [
            row
            for row in _look(sources).rows
            if row["client"] == query.id and query.user in (None, row["user"])
        ]
    except Problem:
        if (stored := sources.away.of(query.id, query.user)) is None:
            raise
        return _absent(sources, stored)
    if not rows:
        if (stored := sources.away.of(query.id, query.user)) is None:
            raise Problem("not-found", f"no client {query.id!r:.200} is connected, or has a session")
        return _absent(sources, stored)
    found = sources.server.call("client", client=query.id, user=rows[0]["user"])["clients"]
    if not found:
        raise Problem("gone", f"client {query.id!r:.200} has just gone")
    details = found[0]
    return OneClient(
        id=query.id,
        connection=client_row(rows[0]),
        session=SessionState(
            is_connected=True,
            expiry_s=details["expiry_s"],
            receive_maximum=details["receive_maximum"],
            in_flight=details["in_flight"],
        ),
        subscription_count=details["subscription_count"],
        subscriptions=[row for one in details["subscriptions"] for row in _subscription_rows(sources, one)],
    )


def _absent(sources: Sources, stored: Mapping[str, Any]) -> OneClient:
    """Return a client without a connection, of its stored session."""
    subscriptions = stored["subscriptions"]
    return OneClient(
        id=stored["client"],
        connection=None,
        session=SessionState(
            is_connected=False,
            expiry_s=stored["expiry_s"],
            away_s=stored["away_s"],
            in_flight=stored["in_flight"][:_DETAILS_COUNT],
        ),
        subscription_count=len(subscriptions),
        subscriptions=[
            row for one in subscriptions[:_DETAILS_COUNT] for row in _subscription_rows(sources, one)
        ],
    )


def _subscription_rows(sources: Sources, one: dict[str, Any]) -> Iterator[Subscription]:
    """Yield a row for each log that a subscription reads from, at least one."""
    if not one["feeds"]:
        yield Subscription(filter=one["filter"], qos=one["qos"])
    for feed in one["feeds"]:
        lag_s: float | None = 0.0
        place = dict(feed)
        if "lag" not in place:  # of a stored session
            place["end_offset"] = _end_of(sources, feed)
            place["lag"] = max(0, place["end_offset"] - place["offset"])
        if place["lag"]:
            oldest_us = time_at(sources.log(feed["log"], feed["partition"]), feed["offset"])
            lag_s = None if oldest_us is None else max(0.0, time.time() - oldest_us / 1e6)
        yield Subscription(filter=one["filter"], qos=one["qos"], lag_s=lag_s, **place)


def _end_of(sources: Sources, feed: Mapping[str, Any]) -> int:
    """Return the end of the log of a feed; the place of the feed if the log is not there any more."""
    try:
        return sources.log(feed["log"], feed["partition"]).end_offset
    except Problem:
        return int(feed["offset"])


class SessionsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which sessions."""

    text: Annotated[Text, msgspec.Meta(description="part of the client id or user")] = ""
    after: Annotated[
        Annotated[str, msgspec.Meta(max_length=131_072)],
        msgspec.Meta(description="`next` of the page before"),
    ] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MOST)] = 100


class AwayRow(msgspec.Struct, frozen=True, kw_only=True):
    """Session without a connection. away_s: null for one that was connected when its server was killed; expires_s: time
    until it ends, null for never; lag: offsets between its place and the ends of its logs; in_flight: messages that its
    client had not acknowledged."""

    client: str
    user: str | None
    away_s: float | None
    expires_s: float | None
    subscriptions: int
    in_flight: int
    lag: int
    size_bytes: int


class AwaySessions(msgspec.Struct, frozen=True, kw_only=True):
    """Page of sessions, by client id. is_complete: false if the search ended before it had a page."""

    sessions: list[AwayRow]
    next: str | None
    is_complete: bool


def sessions(sources: Sources, session: Session, query: SessionsQuery) -> AwaySessions:
    """Return the sessions of clients that are away, from the files of the store: also without a server."""
    until_s = time.monotonic() + SEARCH_S
    has_server = sources.status() is not None
    rows: list[AwayRow] = []
    ends: dict[tuple[str, int], int] = {}
    following: str | None = query.after
    while following is not None and len(rows) < query.limit and time.monotonic() < until_s:
        page, following = sources.away.page(following, PAGE_MOST, query.text)
        for one in page:
            if one["away_s"] is None and has_server:  # connected
                continue
            rows.append(_away_row(sources, one, ends))
            if len(rows) == query.limit:
                following = one["key"] if one is not page[-1] else following
                break
    return AwaySessions(
        sessions=rows, next=following, is_complete=following is None or len(rows) == query.limit
    )


def _away_row(sources: Sources, one: Mapping[str, Any], ends: dict[tuple[str, int], int]) -> AwayRow:
    """Return a row. ends: end of each log that was looked up for a row before."""
    lag = 0
    feeds = {
        (feed["log"], feed["partition"]): feed
        for subscription in one["subscriptions"]
        for feed in subscription["feeds"]
    }
    for log, feed in feeds.items():
        if log not in ends:
            ends[log] = _end_of(sources, feed)
        lag += max(0, ends[log] - feed["offset"])
    expiry_s, away_s = one["expiry_s"], one["away_s"]
    return AwayRow(
        client=one["client"],
        user=one["user"],
        away_s=away_s,
        expires_s=None if expiry_s is None else max(0.0, expiry_s - (away_s or 0.0)),
        subscriptions=len(one["subscriptions"]),
        in_flight=len(one["in_flight"]),
        lag=lag,
        size_bytes=one["size_bytes"],
    )


class ClientEventsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Events of a client, the newest first."""

    id: Annotated[str, msgspec.Meta(max_length=65_535)]
    before: Annotated[int | None, msgspec.Meta(description="`next` of the page before")] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MOST)] = 100


class EventRow(msgspec.Struct, frozen=True, kw_only=True):
    """Event of the server. facts: all keys of its record, see docs/formats/metrics.md."""

    offset: int
    time_us: int
    event: str
    client: str | None
    user: str | None
    address: str | None
    reason: str | None
    facts: dict[str, Any]


class Events(msgspec.Struct, frozen=True, kw_only=True):
    """Page of events, the newest first. is_complete: false if the search ended before it had a page."""

    events: list[EventRow]
    next: int | None
    is_complete: bool = True


def client_events(sources: Sources, session: Session, query: ClientEventsQuery) -> Events:
    """Return what happened to a client: connections, their ends with the final counts, refusals."""
    return events_where(sources, query.before, query.limit, client=query.id)


def events_where(
    sources: Sources,
    before: int | None,
    limit: int,
    *,
    client: str | None = None,
    event: str | None = None,
) -> Events:
    """Return events of the server's log below an offset, the newest first."""
    try:
        log = sources.view.log(EVENTS_LOG)
    except UnknownLog:
        return Events(events=[], next=None)
    at = log.end_offset if before is None else max(log.start_offset, min(before, log.end_offset))
    until_s = time.monotonic() + SEARCH_S
    # Traffic of connections, gauges of hours and traces are many, and asked for by name only.
    figures = {TRAFFIC: TRAFFIC_TOPIC, HOUR: HOUR_TOPIC, TRACE: TRACES_TOPIC}
    topics = [figures[event]] if event in figures else [*EVENT_TOPICS.values(), ACTIONS_TOPIC]
    choice = TopicMask(log.topics, topics)
    found: list[EventRow] = []
    # A client id is JSON in the payload; this rules out nearly all records without decoding them.
    part = msgspec.json.encode(client[:1000]) if client is not None and client.isascii() else None
    while at > log.start_offset and len(found) < limit and time.monotonic() < until_s:
        first = max(log.start_offset, at - _EVENTS_STEP)
        step = list(_step(log, choice, first, at, part))
        at = first
        for row in reversed(step):
            if client is not None and row.client != client[:1000]:
                continue
            if event is not None and row.event != event:
                continue
            found.append(row)
            if len(found) == limit:
                at = row.offset
                break
    is_complete = at <= log.start_offset or len(found) == limit
    return Events(events=found, next=at if at > log.start_offset else None, is_complete=is_complete)


def _step(log: LogView, choice: TopicMask, first: int, end: int, part: bytes | None) -> Any:
    """Yield the events of the offsets [first, end)."""
    at = first
    while at < end:
        try:
            batch = log.read_matching(
                at, choice, max_records=end - at, max_bytes=_READ_BYTES, max_scan=end - at
            )
        except CorruptRecord as error:
            at = error.next_offset
            continue
        except OffsetOutOfRange:
            return
        for record in batch:
            if record.offset >= end:
                return
            if part is None or part in record.payload:
                try:
                    yield _event_row(record.offset, decode_event(record.payload))
                except (ValueError, TypeError):
                    continue
        at = max(at + 1, batch.next_offset)


def _event_row(offset: int, facts: dict[str, Any]) -> EventRow:
    def text(name: str) -> str | None:
        value = facts.get(name)
        return None if value is None else str(value)

    return EventRow(
        offset=offset,
        time_us=int(facts.get("time_us", 0)),
        event=str(facts.get("event", "")),
        client=text("client"),
        user=text("user"),
        address=text("address"),
        reason=text("reason"),
        facts=facts,
    )
