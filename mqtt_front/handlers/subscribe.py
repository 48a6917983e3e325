"""SUBSCRIBE and UNSUBSCRIBE: a reason for each filter; the session is changed and saved before the answer is sent.

A packet with many filters is processed in portions, with a turn of the event loop between two of them. The next
packet of its client waits for the last portion."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from mqtt_front.codec.packets import MQTT_5, Request, Suback, Subscribe, Unsuback, Unsubscribe
from mqtt_front.errors import MalformedPacket, ProtocolViolation
from mqtt_front.feeds.feed import LogSource
from mqtt_front.feeds.subscription import Subscription
from mqtt_front.handlers.server import Server
from mqtt_front.net.client_protocol import ClientProtocol
from mqtt_front.reasons import SUBACK_FAILURE, Reason
from mqtt_front.sessions.replay import Beginning, Wishes, beginning, start_of, times, wishes
from mqtt_front.sessions.session import Session
from mqtt_front.sessions.session_use import subscription_bytes
from mqtt_front.topics.filter_form import FilterForm, Kind, parse_filter
from mqtt_front.topics.replay_start import Start, StartKind
from timestone.errors import InvalidName


def subscribe(broker: Server, link: ClientProtocol, packet: Subscribe) -> None:
    """Add subscriptions. Records appended from now on are delivered, or the history from the requested position.
    SUBACK is sent when a session that outlives its connection is durable, and then the deliveries: MQTT allows them
    before SUBACK, but not every client expects that."""
    _behind_publishes(broker, link, lambda: _look_up(broker, link, packet))


def _behind_publishes(broker: Server, link: ClientProtocol, then: Callable[[], None]) -> None:
    """Continue when earlier publishes of the client are in the log: packets of a connection take effect in order,
    and a subscription covers what follows it."""
    if link.submitted_bytes:
        broker.ingest.flush()
    if link.closing:
        return  # one of them was refused
    if not link.submitted_bytes and not _lags(broker):
        then()
        return
    link.wait("the publishes before its SUBSCRIBE")
    # In a later turn, after everything that the settled publishes cause.
    broker.ingest.once_settled(lambda: broker.loop.call_soon(_once_here, broker, link, then, _LOOKS))


def _lags(broker: Server) -> bool:
    """Return whether publishes are at the leader of their log and not yet in the copy that is read here."""
    partitions = broker.router.partitions
    return partitions is not None and partitions.lags


def _once_here(broker: Server, link: ClientProtocol, then: Callable[[], None], looks: int) -> None:
    if looks and _lags(broker):
        broker.loop.call_later(_LOOK_S, _once_here, broker, link, then, looks - 1)
    else:
        link.go_on(then)


def _look_up(broker: Server, link: ClientProtocol, packet: Subscribe) -> None:
    """Look up replay positions given as a time, then subscribe."""
    wished = wishes(packet, link.level)
    asked, work = times(packet.requests, wished), _Subscribing(broker, link, packet, wished)
    if not asked:
        _subscribe_all(work)
        return

    def found(positions: Found | Exception) -> None:
        work.found = positions
        link.go_on(lambda: _subscribe_all(work))

    link.wait("answer about where its replay begins")
    broker.read(
        lambda: {(log.key, time): beginning(log, time) for log in broker.router.readable for time in asked},
        found,
    )


_LOOK_S = 0.005
_LOOKS = 400
"""So often a SUBSCRIBE waits for the copies of logs on this node, at most."""
Found = Mapping[tuple[str, Start], Beginning]
"""Positions looked up on the disk, by name of the log and time."""


_PORTION = 256
"""Filters processed before other clients have their turn: some milliseconds."""
_REFUSALS_LOGGED = 10
"""Maximum refusals of one packet that are logged singly; further ones share a line."""


def _in_portions(
    broker: Server,
    link: ClientProtocol,
    count: int,
    serve: Callable[[slice], None],
    done: Callable[[], None],
    start: int = 0,
) -> None:
    """Process `count` filters in portions, then call `done`. Stops if the client disconnects. Portions span packets:
    a client may send thousands of small ones at once."""
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
    """Continue with the next packet of the client."""


class _Subscribing:
    """A SUBSCRIBE in progress."""

    def __init__(self, broker: Server, link: ClientProtocol, packet: Subscribe, wished: Wishes) -> None:
        assert link.session is not None
        self.broker, self.link, self.session = broker, link, link.session
        self.packet, self.wished = packet, wished
        self.identifier = next(iter(packet.properties.subscription_identifiers), None)
        self.found: Found | Exception = {}
        self.reasons: list[int] = []
        """In the order of the requests."""
        self.system_filters = self.session.system_filters
        """Filters on `$SYS` before this packet."""
        self.refused_count = 0

    def warn(self, topic_filter: str, why: str) -> None:
        """Log that a filter is refused."""
        self.refused_count += 1
        if self.refused_count <= _REFUSALS_LOGGED:
            self.broker.log.warning("%r may not subscribe to %r: %s", self.link, topic_filter[:200], why)

    def greets(self, request: Request) -> bool:
        """Return whether the subscription begins with the current values of `$SYS`."""
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
        work.broker.sessions.resized(work.session)
        if retained:
            work.session.deliver_retained(retained)

    _in_portions(work.broker, work.link, len(requests), serve, functools.partial(_answer, work))


def _answer(work: _Subscribing) -> None:
    """Send SUBACK when the session is durable, and then the first deliveries."""
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
    """Return the reason code for one filter, and add the filter to `retained` if it begins with retained messages."""
    broker, link, session, wished = work.broker, work.link, work.session, work.wished
    topic_filter = request.topic_filter
    refusal = _refusal(broker, session, request)
    if refusal is None and link.permissions is not None:
        asked = parse_filter(topic_filter)
        if not asked.shared and not link.permissions.may_subscribe(asked.pattern):
            refusal = _Refusal(Reason.NOT_AUTHORIZED, "no rule lets it")
        if asked.shared and not link.permissions.may_read_all(asked.pattern):
            refusal = _Refusal(Reason.NOT_AUTHORIZED, "it may not read all that is shared there")
    if refusal is None and not session.reads_server and parse_filter(topic_filter).of_server:
        refusal = _Refusal(Reason.NOT_AUTHORIZED, "it may not read what the server records about itself")
    if refusal is not None:
        reason, why = refusal
        work.warn(topic_filter, f"{why} ({reason.name})")
        silent = reason is Reason.NOT_AUTHORIZED and not broker.settings.tell_not_authorized
        return Reason.UNSPECIFIED_ERROR if silent else reason
    form, sources = parse_filter(topic_filter), broker.router.sources(topic_filter)
    # MQTT 5 lets a bridge request this; before, a client can only state that it is a bridge.
    bridged = link.bridge and form.kind is Kind.PLAIN
    subscription = Subscription(
        topic_filter,
        request.qos,
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
    if (
        form.kind is Kind.PLAIN
        and not form.of_server
        and (request.retain_handling == 0 or (request.retain_handling == 1 and new))
    ):
        retained.append(topic_filter)
    return request.qos


def _starts(
    sources: Sequence[LogSource], form: FilterForm, wished: Wishes, found: Found | Exception
) -> dict[str, Beginning]:
    """Return where the subscription begins in each log. Raises InvalidName for a position that no log has, OSError."""
    if form.kind is Kind.PLAIN:
        return {}
    start = start_of(form, wished)
    if start.kind is StartKind.OFFSET and len(sources) > 1:
        raise InvalidName(
            f"offset {start.number} of {len(sources)} logs: name one with $stream/<log>, or its partitions with "
            "offset:<partition>:<n>"
        )
    if start.kind is not StartKind.TIME:
        return {one.log.key: beginning(one.log, start, is_copy=one.partition is not None) for one in sources}
    if isinstance(found, Exception):
        raise OSError(f"the beginning could not be looked up: {found}") from found
    return {one.log.key: found[one.log.key, start] for one in sources}


def _say_what_is_gone(broker: Server, link: ClientProtocol, starts: Mapping[str, Beginning]) -> None:
    """Log that a replay begins later than requested. MQTT 5 clients are informed with the first delivery; MQTT 3 has
    no means."""
    for name, start in starts.items():
        if start.missed:
            message = f"log {name}: retention took what {link!r} asks for; its replay begins at offset {start.offset}"
            broker.throttled_log.warn(f"gap {link.client_id}", message)


class _Refusal(NamedTuple):
    """Reason for refusing a subscription: for the client, and for the log."""

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
        found = "no log has these topics" if form.log is None else f"no log named {form.log!r}"
        return _Refusal(Reason.TOPIC_FILTER_INVALID, found)
    return None if topic_filter in session.subscriptions else _over_limit(broker, session, form, request)


def _over_limit(broker: Server, session: Session, form: FilterForm, request: Request) -> _Refusal | None:
    """Return the refusal for a subscription over a limit; None if it is within all."""
    groups, sources = broker.router.groups, broker.router.sources(request.topic_filter)
    added = [one for one in sources if form.shared and groups.find(one.log, request.topic_filter) is None]
    limit, owner = broker.settings.shared_count, groups.shares.owner(session.key)
    if added and len(groups) + len(added) > limit:
        return _over(broker, "shared_count", Reason.QUOTA_EXCEEDED)
    if added and groups.tally.of(owner) + len(added) > groups.shares.of(limit):
        return _over(broker, "user_share_percent", Reason.QUOTA_EXCEEDED, f" of shared_count ({limit})")
    if len(session.subscriptions) >= broker.settings.subscription_count:
        return _over(broker, "subscription_count", Reason.QUOTA_EXCEEDED)
    more_bytes = session.size_bytes - session.counted_bytes + subscription_bytes(request.topic_filter)
    if (over := broker.sessions.use.over(session.key, 0, more_bytes)) is not None:
        setting, why = over
        broker.over[setting] += 1
        return _Refusal(Reason.QUOTA_EXCEEDED, why)
    return None


def _over(broker: Server, limit: str, reason: Reason, what: str = "") -> _Refusal:
    broker.over[limit] += 1
    return _Refusal(reason, f"{limit} is {getattr(broker.settings, limit)}{what}")


def unsubscribe(broker: Server, link: ClientProtocol, packet: Unsubscribe) -> None:
    """Handle UNSUBSCRIBE. Deliveries in flight continue; UNSUBACK is sent when the change is durable."""
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
        broker.sessions.resized(session)

    def done() -> None:
        session.feeds.drop_idle()
        broker.delivery.start(session)
        broker.sessions.save(session, lambda: link.send(Unsuback(packet.packet_id, tuple(reasons))))

    _in_portions(broker, link, len(packet.topic_filters), serve, done)
