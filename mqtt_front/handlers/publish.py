"""PUBLISH: passes publishes to the ingest, those of clients within their rights and rates, and wills of the server."""

from collections.abc import Callable, Collection, Mapping

from mqtt_front.codec.packets import MQTT_5, Will
from mqtt_front.errors import MqttError, ProtocolViolation
from mqtt_front.handlers.server import Server
from mqtt_front.metrics import RATES
from mqtt_front.net.client_protocol import ClientProtocol
from mqtt_front.protocol.events import Publishes, PublishRow, has_qos_2
from mqtt_front.protocol.header_block import header_block, with_publisher, with_will_key
from mqtt_front.reasons import Reason
from mqtt_front.retained.keeper import has_retained
from mqtt_front.retained.messages import UNOWNED
from mqtt_front.runtime.timer_wheel import TICK_S
from mqtt_front.sessions.session import Session
from mqtt_front.settings import MqttSettings
from timestone.record import FLAG_RETAIN
from timestone_access.token_bucket import TokenBucket

_PUBACK = b"\x40\x02\0\0"


def rates(settings: MqttSettings, now: int) -> tuple[TokenBucket | None, TokenBucket | None] | None:
    """Return the rate limits of a new client, in publishes and in bytes; None without limits."""
    limits = [getattr(settings, setting) for setting in RATES]
    if not any(limits):
        return None
    count, size_bytes = (TokenBucket(limit, now, TICK_S) if limit else None for limit in limits)
    return count, size_bytes


def publish(broker: Server, link: ClientProtocol, run: Publishes) -> None:
    """Handle publishes of a client. Raises MqttError for the first invalid topic, after taking those before it, and
    for a client over its rate limit, without taking any."""
    if link.publish_rates is not None:
        _spend(broker, link, run)
    permissions, session = link.permissions, link.session
    forbidden = permissions.forbidden(run.topics) if permissions is not None else ()
    if forbidden:
        broker.counts.forbidden += sum(run.topics[number] in forbidden for number in run.numbers())
    wants_publisher = session is not None and session.no_local
    if wants_publisher:
        run = with_publisher(run, link.session_key)
    if has_retained(run):
        if not wants_publisher:  # the record says whose retained message it is, also after a restart
            run = with_publisher(run, link.session_key, only_retained=True)
        if refused := broker.retaining.over_limit(run, link.owner):
            _append_in_pieces(broker, link, run, forbidden, refused)
            return
    _append(broker, link, run, forbidden)


def _spend(broker: Server, link: ClientProtocol, run: Publishes) -> None:
    amounts = (len(run.first_bytes), run.size_bytes)
    for setting, rate, amount in zip(RATES, link.publish_rates or (), amounts, strict=True):
        if rate is not None and not rate.spend(amount, broker.deadlines.now):
            message = f"it publishes too fast: {setting} is {getattr(broker.settings, setting)}"
            raise ProtocolViolation(message, Reason.MESSAGE_RATE_TOO_HIGH, setting)


def _append_in_pieces(
    broker: Server,
    link: ClientProtocol,
    run: Publishes,
    forbidden: Collection[bytes],
    refused: Mapping[int, str],
) -> None:
    """Take a run of which some publishes cannot be retained: those are refused, in the order of the answers. refused:
    by place the setting that forbids it."""
    broker.over["user_share_percent"] += list(refused.values()).count("user_share_percent")
    kept: list[PublishRow] = []
    for place, row in enumerate(run.rows()):
        if place not in refused:
            kept.append(row)
            continue
        _append(broker, link, Publishes.of(kept), forbidden)
        kept = []
        broker.ingest.refuse(link, row, Reason.QUOTA_EXCEEDED, f"over {refused[place]}")
    _append(broker, link, Publishes.of(kept, run.size_bytes), forbidden)


def _append(broker: Server, link: ClientProtocol, run: Publishes, forbidden: Collection[bytes]) -> None:
    """Pass a run to the ingest."""
    if link.session is not None and has_qos_2(run.first_bytes):
        _append_once(broker, link, link.session, run, forbidden)
        return
    fault = broker.ingest.add(link, run, forbidden, link.owner)
    if fault is not None:
        raise fault


def _append_once(
    broker: Server, link: ClientProtocol, session: Session, run: Publishes, forbidden: Collection[bytes]
) -> None:
    """Take a run with publishes at QoS 2. Packet ids are noted only for publishes that are appended."""
    link.exactly_once = True
    codes, fault = broker.router.codes(run.topics, forbidden, link.owner)
    if fault is not None:
        run = run.head(run.numbers().index(len(codes)))
    run, repeated = broker.receipts.once(session, run)
    if run.first_bytes:
        broker.ingest.add(link, run, forbidden, link.owner)
    if repeated:
        broker.ingest.repeat(link, repeated)
    if fault is not None:
        raise fault


def publish_will(
    broker: Server, key: str, session_key: str, will: Will, done: Callable[[bool], None]
) -> None:
    """Publish the will of a client that disconnected, with its key in the record. done: called with whether it is in
    the log; a will that can never be published counts as done."""
    client_id = session_key.partition("\0")[0]
    owner = broker.router.shares.owner(session_key)
    try:
        code = broker.router.code(will.topic, owner)
        plain = header_block(will.properties)
    except MqttError as error:
        broker.log.warning("will of client %r is left out: %s", client_id, error)
        done(True)
        return
    if code < 0:
        limit = broker.router.limit(will.topic.encode(), code, owner)
        why = Reason(-code).name + (f", over {limit}" if limit else "")
        broker.log.warning("will of client %r is refused: %s", client_id, why)
        done(True)
        return
    block = with_will_key(plain, key)
    # Acknowledged at any QoS: the stored will is removed when its record is durable.
    row = PublishRow(0x30 | will.qos << 1 | will.retain, will.topic.encode(), block, will.payload, _PUBACK)
    run = Publishes.of([row])
    # Without room for its key it does not say whose retained message it is.
    if will.retain and (block is plain or broker.retaining.over_limit(run, owner)):
        broker.log.warning("will of client %r is published, but there is no room to retain it", client_id)
        run = Publishes.of([row._replace(first=row.first & ~FLAG_RETAIN)])
    broker.ingest.add(_Absent(f"the will of client {client_id!r}", done), run)


def publish_own(
    broker: Server, topic: str, payload: bytes, qos: int, done: Callable[[bool], None], *, retain: bool
) -> None:
    """Publish a message that no client sent. done: called with whether it is in the log. Raises MalformedPacket for an
    invalid topic, ProtocolViolation for one that is refused."""
    code = broker.router.code(topic)
    if code < 0:
        raise ProtocolViolation(f"topic refused: {Reason(-code).name.lower()}", Reason(-code))
    run = Publishes.of([PublishRow(0x30 | qos << 1 | retain, topic.encode(), b"", payload, _PUBACK)])
    refused = broker.retaining.over_limit(run, UNOWNED) if retain else {}
    if refused:
        raise ProtocolViolation(f"it cannot be retained: over {refused[0]}", Reason.QUOTA_EXCEEDED)
    broker.ingest.add(_Absent("a publish of an operator", done), run)


class _Absent:
    """Source of a message without a connection: of a will, or of an operator."""

    level = MQTT_5
    exactly_once = True

    def __init__(self, name: str, done: Callable[[bool], None]) -> None:
        self.submitted_bytes = self.publish_count = self.refused_count = 0
        self._name = name
        self._done = done

    def __repr__(self) -> str:
        return self._name

    def acknowledge(self, data: bytes, count: int) -> None:
        """Ignore acknowledgements: no client waits for one."""

    def settled(self, acknowledgements: bytes, reason: int) -> None:
        self._done(reason == 0)

    def has_received(self, acknowledgement: bytes) -> bool:
        """Return True: it is published once."""
        return True

    def refuse(self, message: str) -> None:
        """Ignore the reason, which was logged."""

    def hold(self) -> None:
        """One message has nothing to hold back."""

    def release(self, portion: int) -> None:
        """Ignore the call: nothing was held."""
