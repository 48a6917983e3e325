"""SUBSCRIBE and UNSUBSCRIBE: a reason for each filter, and the session changed and saved before the answer
goes out.

A packet with many filters is served in portions, with a turn of the event loop between two of them. Its client's next
packet waits until the last portion is done.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from mqtt_front.codec.packets import MQTT_5, Request, Suback, Subscribe, Unsuback, Unsubscribe
from mqtt_front.errors import MalformedPacket, ProtocolViolation
from mqtt_front.feeds.feed import LogSource
from mqtt_front.feeds.subscription import Subscription
from mqtt_front.handlers.server import Server
from mqtt_front.net.client_protocol import Link
from mqtt_front.reasons import SUBACK_FAILURE, Reason
from mqtt_front.sessions.replay import Beginning, Wishes, beginning, start_of, times, wishes
from mqtt_front.sessions.session import Session
from mqtt_front.topics.filter_form import FilterForm, Kind, parse_filter
from mqtt_front.topics.replay_start import Start, StartKind
from timestone.errors import InvalidName


def subscribe(broker: Server, link: Link, packet: Subscribe) -> None:
    """Add subscriptions. What is appended from now on is delivered, or the history from where the client asked; SUBACK
    follows once the session is durable, if it is one that outlives its connection, and then what the subscriptions
    bring. Deliveries might overtake it, as MQTT allows, but not every client expects that."""
    _behind_publishes(broker, link, lambda: _look_up(broker, link, packet))


def _behind_publishes(broker: Server, link: Link, then: Callable[[], None]) -> None:
    """Go on when what the client has published before is in the log: packets of a connection take effect in their
    order, and a subscription is about what comes after it."""
    if link.submitted_bytes:
        broker.ingest.flush()
    if not link.submitted_bytes:
        then()
        return
    link.wait("the publishes before its SUBSCRIBE")
    # In a later turn, so that all that goes with the settled publishes is done.
    broker.ingest.once_settled(lambda: broker.loop.call_soon(link.go_on, then))


def _look_up(broker: Server, link: Link, packet: Subscribe) -> None:
    """Find out where replays begin that ask for a time, then subscribe."""
    wished = wishes(packet, link.level)
    asked = times(packet.requests, wished)
    if not asked:
        _subscribe_all(_Subscribing(broker, link, packet, wished, {}))
        return
    link.wait("answer about where its replay begins")
    broker.read(
        lambda: {(log.name, time): beginning(log, time) for log in broker.router.logs for time in asked},
        lambda found: link.go_on(lambda: _subscribe_all(_Subscribing(broker, link, packet, wished, found))),
    )


Found = Mapping[tuple[str, Start], Beginning]
"""By name of the log and time: what was looked up on the disk."""


_PORTION = 256
"""Filters that are served before other clients have their turn: some milliseconds."""
_REFUSALS_LOGGED = 10
"""Of one packet; more of them are counted in one line."""


def _in_portions(
    broker: Server,
    link: Link,
    count: int,
    serve: Callable[[slice], None],
    done: Callable[[], None],
    start: int = 0,
) -> None:
    """Serve `count` filters, portion by portion, then call `done`. The rest is left out when the client has gone.
    Portions go over packets: a client may send thousands of small ones at once."""
    end = min(start + _PORTION - link.filters_served, count)
    link.filters_served += end - start
    serve(slice(start, end))
    if end == count:
        done()
    if link.filters_served == _PORTION and not link.closing:
        link.filters_served = 0
        link.wait("the rest of its topic filters")
        rest = functools.partial(_in_portions, broker, link, count, serve, done, end)
        broker.loop.call_soon(link.go_on, rest if end < count else _nothing)


def _nothing() -> None:
    """Nothing is left of a packet: its client's next one has its turn."""


class _Subscribing:
    """A SUBSCRIBE that is being served."""

    def __init__(
        self, broker: Server, link: Link, packet: Subscribe, wished: Wishes, found: Found | Exception
    ) -> None:
        assert link.session is not None
        self.broker = broker
        self.link = link
        self.session = link.session
        self.packet = packet
        self.identifier = next(iter(packet.properties.subscription_identifiers), None)
        self.wished = wished
        self.found = found
        self.reasons: list[int] = []
        """By request."""
        self.system_filters = self.session.system_filters
        """Those of before."""
        self.refused_count = 0

    def warn(self, topic_filter: str, why: str) -> None:
        """Say in the log that a filter is refused."""
        self.refused_count += 1
        if self.refused_count <= _REFUSALS_LOGGED:
            self.broker.log.warning("%r may not subscribe to %r: %s", self.link, topic_filter[:200], why)

    def greets(self, request: Request) -> bool:
        """Does the subscription begin with what the server says of itself now?"""
        topic_filter = request.topic_filter
        return topic_filter in self.session.system_filters and (
            request.retain_handling == 0
            or (request.retain_handling == 1 and topic_filter not in self.system_filters)
        )


def _subscribe_all(work: _Subscribing) -> None:
    requests = work.packet.requests

    def serve(portion: slice) -> None:
        retained: list[str] = []
        with work.session.one_change():
            work.reasons += [_subscribe(work, request, retained) for request in requests[portion]]
        if retained:
            work.session.deliver_retained(retained)

    _in_portions(work.broker, work.link, len(requests), serve, functools.partial(_answer, work))


def _answer(work: _Subscribing) -> None:
    """SUBACK, once the session is durable, and then what the subscriptions bring."""
    broker, link, session = work.broker, work.link, work.session
    if work.refused_count > _REFUSALS_LOGGED:
        left = work.refused_count - _REFUSALS_LOGGED
        broker.log.warning("%r may not subscribe to %d more topic filters of the same packet", link, left)
    greeted = [one for one in work.packet.requests if work.greets(one)] if session.system_filters else []
    reasons = work.reasons
    if link.level != MQTT_5:
        reasons = [SUBACK_FAILURE if reason >= 0x80 else reason for reason in reasons]

    def saved() -> None:
        link.send(Suback(work.packet.packet_id, tuple(reasons)))
        if session.client is link:
            broker.delivery.start(session)
            for request in greeted:
                broker.system.greet(session, request.topic_filter)

    broker.sessions.save(session, saved)


def _subscribe(work: _Subscribing, request: Request, retained: list[str]) -> int:
    """The reason code for one filter, which is added to `retained` if it begins with the retained messages."""
    broker, link, session, wished = work.broker, work.link, work.session, work.wished
    topic_filter = request.topic_filter
    refusal = _refusal(broker, session, request)
    if refusal is None and link.permissions is not None:
        asked = parse_filter(topic_filter)
        if not asked.shared and not link.permissions.may_subscribe(asked.pattern):
            refusal = _Refusal(Reason.NOT_AUTHORIZED, "no rule lets it")
        if asked.shared and not link.permissions.may_read_all(asked.pattern):
            refusal = _Refusal(Reason.NOT_AUTHORIZED, "it may not read all that is shared there")
    if refusal is not None:
        reason, why = refusal
        work.warn(topic_filter, f"{why} ({reason.name})")
        silent = reason is Reason.NOT_AUTHORIZED and not broker.settings.tell_not_authorized
        return Reason.UNSPECIFIED_ERROR if silent else reason
    qos = min(request.qos, broker.inbound.maximum_qos)
    form, sources = parse_filter(topic_filter), broker.router.sources(topic_filter)
    # MQTT 5 lets a bridge ask for that; before, it can only say that it is one.
    bridged = link.bridge and form.kind is Kind.PLAIN
    subscription = Subscription(
        topic_filter,
        qos,
        request.no_local or bridged,
        request.retain_as_published or bridged,
        work.identifier,
    )
    goes_on = topic_filter in session.subscriptions and not wished.reset
    try:
        starts = {} if goes_on else _starts(sources, form, wished, work.found)
    except (InvalidName, OSError) as error:
        work.warn(topic_filter, str(error))
        return Reason.IMPLEMENTATION_SPECIFIC_ERROR
    if form.kind is Kind.STREAM:
        _say_what_is_gone(broker, link, starts)
    if form.kind is Kind.STREAM and wished.reset:
        session.unsubscribe(topic_filter)
    new = session.subscribe(subscription, sources, starts)
    if form.kind is Kind.PLAIN and (request.retain_handling == 0 or (request.retain_handling == 1 and new)):
        retained.append(topic_filter)
    return qos


def _starts(
    sources: Sequence[LogSource], form: FilterForm, wished: Wishes, found: Found | Exception
) -> dict[str, Beginning]:
    """Where the subscription begins in each log. Raises InvalidName for a place that is in none of them, OSError."""
    if form.kind is Kind.PLAIN:
        return {}
    start = start_of(form, wished)
    if start.kind is StartKind.OFFSET and len(sources) > 1:
        raise InvalidName(f"offset {start.number} of {len(sources)} logs: name one with $stream/<log>")
    if start.kind is not StartKind.TIME:
        return {one.log.name: beginning(one.log, start) for one in sources}
    if isinstance(found, Exception):
        raise OSError(f"the beginning could not be looked up: {found}") from found
    return {one.log.name: found[one.log.name, start] for one in sources}


def _say_what_is_gone(broker: Server, link: Link, starts: Mapping[str, Beginning]) -> None:
    """A replay begins later than its client asked for. MQTT 5 is told with the first delivery, MQTT 3 cannot be."""
    for name, start in starts.items():
        if start.missed:
            message = f"log {name}: retention took what {link!r} asks for; its replay begins at offset {start.offset}"
            broker.complaints.warn(f"gap {link.client_id}", message)


class _Refusal(NamedTuple):
    """Why there is no such subscription: for the client, and for the log."""

    reason: Reason
    why: str


def _refusal(broker: Server, session: Session, request: Request) -> _Refusal | None:
    topic_filter = request.topic_filter
    if not topic_filter:
        raise MalformedPacket("invalid topic filter: expected at least one character")
    if request.no_local and topic_filter.startswith(("$share/", "$queue/")):
        raise ProtocolViolation("No Local on a shared subscription")  # [MQTT-3.8.3-4]
    try:
        form = parse_filter(topic_filter)
    except InvalidName as error:
        return _Refusal(Reason.TOPIC_FILTER_INVALID, str(error))
    if form.pattern.count("/") >= broker.settings.topic_levels:
        return _over(broker, "topic_levels", Reason.TOPIC_FILTER_INVALID)
    if len(topic_filter.encode()) > broker.settings.topic_bytes:
        return _over(broker, "topic_bytes", Reason.TOPIC_FILTER_INVALID)
    if form.kind is not Kind.PLAIN and not broker.router.sources(topic_filter):
        return _Refusal(Reason.TOPIC_FILTER_INVALID, "there is no such log")  # $SYS is in none
    return None if topic_filter in session.subscriptions else _over_limit(broker, session, form, request)


def _over_limit(broker: Server, session: Session, form: FilterForm, request: Request) -> _Refusal | None:
    """Why there may not be one more subscription, or None."""
    groups, sources = broker.router.groups, broker.router.sources(request.topic_filter)
    added = [one for one in sources if form.shared and groups.find(one.log, request.topic_filter) is None]
    limit, owner = broker.settings.shared_count, groups.shares.owner(session.key)
    if added and len(groups) + len(added) > limit:
        return _over(broker, "shared_count", Reason.QUOTA_EXCEEDED)
    if added and groups.tally.of(owner) + len(added) > groups.shares.of(limit):
        return _over(broker, "user_share_percent", Reason.QUOTA_EXCEEDED, f" of shared_count ({limit})")
    if len(session.subscriptions) >= broker.settings.subscription_count:
        return _over(broker, "subscription_count", Reason.QUOTA_EXCEEDED)
    return None


def _over(broker: Server, limit: str, reason: Reason, what: str = "") -> _Refusal:
    broker.over[limit] += 1
    return _Refusal(reason, f"{limit} is {getattr(broker.settings, limit)}{what}")


def unsubscribe(broker: Server, link: Link, packet: Unsubscribe) -> None:
    """End subscriptions. What is in flight continues; UNSUBACK follows once that is durable."""
    session = link.session
    assert session is not None
    reasons: list[int] = []

    def serve(portion: slice) -> None:
        with session.one_change():
            for topic_filter in packet.topic_filters[portion]:
                if not topic_filter:
                    raise MalformedPacket("invalid topic filter: expected at least one character")
                existed = session.unsubscribe(topic_filter)
                reasons.append(Reason.SUCCESS if existed else Reason.NO_SUBSCRIPTION_EXISTED)

    def done() -> None:
        session.drop_idle_feeds()
        broker.delivery.start(session)
        broker.sessions.save(session, lambda: link.send(Unsuback(packet.packet_id, tuple(reasons))))

    _in_portions(broker, link, len(packet.topic_filters), serve, done)
