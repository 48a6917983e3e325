"""SUBSCRIBE and UNSUBSCRIBE: a reason for each filter, and the session changed and saved before the answer
goes out."""

from typing import TYPE_CHECKING

from mqtt_front.codec.packets import MQTT_5, Request, Suback, Subscribe, Unsuback, Unsubscribe
from mqtt_front.codec.reasons import SUBACK_FAILURE, Reason
from mqtt_front.errors import MalformedPacket, ProtocolViolation
from mqtt_front.filter_form import FilterForm, Kind, parse_filter
from mqtt_front.link import Link
from mqtt_front.session import Session
from mqtt_front.subscription import Subscription
from timestone.errors import InvalidName

if TYPE_CHECKING:
    from mqtt_front.broker import Broker


def subscribe(broker: "Broker", link: Link, packet: Subscribe) -> None:
    """Add subscriptions. What is appended from now on is delivered; SUBACK follows once the session is durable, if it
    is one that outlives its connection, and then what the subscriptions bring. Deliveries might overtake it, as MQTT
    allows, but not every client expects that."""
    session = link.session
    assert session is not None
    identifier = next(iter(packet.properties.subscription_identifiers), None)
    known = session.system_filters
    reasons = [_subscribe(broker, link, session, request, identifier) for request in packet.requests]
    greeted = [
        one
        for one in packet.requests
        if one.topic_filter in session.system_filters
        and (one.retain_handling == 0 or (one.retain_handling == 1 and one.topic_filter not in known))
    ]
    if link.level != MQTT_5:
        reasons = [SUBACK_FAILURE if reason >= 0x80 else reason for reason in reasons]

    def saved() -> None:
        link.send(Suback(packet.packet_id, tuple(reasons)))
        if session.client is link:
            broker.delivery.start(session)
            for request in greeted:
                broker.system.greet(session, request.topic_filter)

    broker.sessions.save(session, saved)


def _subscribe(
    broker: "Broker", link: Link, session: Session, request: Request, identifier: int | None
) -> int:
    """The reason code for one filter."""
    refusal = _refusal(broker, session, request)
    if refusal is None and link.permissions is not None:
        pattern = parse_filter(request.topic_filter).pattern
        refusal = None if link.permissions.may_subscribe(pattern) else Reason.NOT_AUTHORIZED
    if refusal is not None:
        broker.log.warning("%r may not subscribe to %r: %s", link, request.topic_filter[:200], refusal.name)
        return refusal
    qos = min(request.qos, broker.inbound.maximum_qos)
    subscription = Subscription(
        request.topic_filter, qos, request.no_local, request.retain_as_published, identifier
    )
    new = session.subscribe(subscription, broker.router.sources(request.topic_filter))
    if subscription.form.kind is Kind.PLAIN and (
        request.retain_handling == 0 or (request.retain_handling == 1 and new)
    ):
        session.deliver_retained(request.topic_filter)
    return qos


def _refusal(broker: "Broker", session: Session, request: Request) -> Reason | None:
    topic_filter = request.topic_filter
    if not topic_filter:
        raise MalformedPacket("an empty topic filter")
    if request.no_local and topic_filter.startswith(("$share/", "$queue/")):
        raise ProtocolViolation("No Local on a shared subscription")  # [MQTT-3.8.3-4]
    try:
        form = parse_filter(topic_filter)
    except InvalidName:
        return Reason.TOPIC_FILTER_INVALID
    if form.pattern.count("/") >= broker.settings.topic_levels:
        broker.over["topic_levels"] += 1
        return Reason.TOPIC_FILTER_INVALID
    if len(topic_filter.encode()) > broker.settings.topic_bytes:
        broker.over["topic_bytes"] += 1
        return Reason.TOPIC_FILTER_INVALID
    if form.log is not None:
        return Reason.TOPIC_FILTER_INVALID
    sources = broker.router.sources(topic_filter)
    if form.shared and not sources:
        return Reason.TOPIC_FILTER_INVALID  # what the server says of itself is said to everybody
    return None if topic_filter in session.subscriptions else _over_limit(broker, session, form, request)


def _over_limit(broker: "Broker", session: Session, form: FilterForm, request: Request) -> Reason | None:
    """Why there may not be one more subscription, or None."""
    groups, sources = broker.router.groups, broker.router.sources(request.topic_filter)
    added = [one for one in sources if form.shared and groups.find(one.log, request.topic_filter) is None]
    if added and len(groups) + len(added) > broker.settings.shared_count:
        broker.over["shared_count"] += 1
        return Reason.QUOTA_EXCEEDED
    if len(session.subscriptions) >= broker.settings.subscription_count:
        broker.over["subscription_count"] += 1
        return Reason.QUOTA_EXCEEDED
    return None


def unsubscribe(broker: "Broker", link: Link, packet: Unsubscribe) -> None:
    """End subscriptions. What is in flight goes on; UNSUBACK follows once that is durable."""
    session = link.session
    assert session is not None
    reasons = []
    for topic_filter in packet.topic_filters:
        if not topic_filter:
            raise MalformedPacket("an empty topic filter")
        existed = session.unsubscribe(topic_filter)
        reasons.append(Reason.SUCCESS if existed else Reason.NO_SUBSCRIPTION_EXISTED)
    session.drop_idle_feeds()
    broker.delivery.start(session)
    broker.sessions.save(session, lambda: link.send(Unsuback(packet.packet_id, tuple(reasons))))
