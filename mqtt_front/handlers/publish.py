"""Publishes on their way to the ingest: of clients, within what each may do, and of the server for clients that left
without a word."""

from collections.abc import Callable, Collection

from mqtt_front.codec.packets import MQTT_5, Will
from mqtt_front.errors import MqttError, ProtocolViolation
from mqtt_front.handlers.server import Server
from mqtt_front.metrics import RATES
from mqtt_front.net.client_protocol import Link
from mqtt_front.protocol.events import Publishes, PublishRow, has_qos_2
from mqtt_front.protocol.header_block import header_block, with_publisher, with_will_key
from mqtt_front.reasons import Reason
from mqtt_front.retained.keeper import has_retained
from mqtt_front.runtime.token_bucket import Rate
from mqtt_front.sessions.session import Session
from mqtt_front.settings import MqttSettings
from timestone.record import FLAG_RETAIN

_PUBACK = b"\x40\x02\0\0"


def rates(settings: MqttSettings, now: int) -> tuple[Rate | None, Rate | None] | None:
    """The allowance of a new client to publish, in publishes and in bytes; None when there is no limit."""
    limits = [getattr(settings, setting) for setting in RATES]
    if not any(limits):
        return None
    count, size_bytes = (Rate(limit, now) if limit else None for limit in limits)
    return count, size_bytes


def publish(broker: Server, link: Link, run: Publishes) -> None:
    """A client published. Raises MqttError for the first impossible topic; what came before it is taken. Raises it also
    when the client publishes too fast; then nothing of the run is."""
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
        if link.level == MQTT_5 and not wants_publisher:
            run = with_publisher(run, link.session_key, only_retained=True)
        if refused := broker.retaining.over_limit(run):
            _append_in_pieces(broker, link, run, forbidden, refused)
            return
    _append(broker, link, run, forbidden)


def _spend(broker: Server, link: Link, run: Publishes) -> None:
    amounts = (len(run.first_bytes), run.size_bytes)
    for setting, rate, amount in zip(RATES, link.publish_rates or (), amounts, strict=True):
        if rate is not None and not rate.spend(amount, broker.deadlines.now):
            message = f"it publishes too fast: {setting} is {getattr(broker.settings, setting)}"
            raise ProtocolViolation(message, Reason.MESSAGE_RATE_TOO_HIGH, setting)


def _append_in_pieces(
    broker: Server, link: Link, run: Publishes, forbidden: Collection[bytes], refused: Collection[int]
) -> None:
    """A run some of whose publishes cannot be retained: those are refused, in the order of the answers."""
    kept: list[PublishRow] = []
    for place, row in enumerate(run.rows()):
        if place not in refused:
            kept.append(row)
            continue
        _append(broker, link, Publishes.of(kept), forbidden)
        kept = []
        broker.ingest.refuse(link, row, Reason.QUOTA_EXCEEDED)
    _append(broker, link, Publishes.of(kept, run.size_bytes), forbidden)


def _append(broker: Server, link: Link, run: Publishes, forbidden: Collection[bytes]) -> None:
    """Hand a run to the ingest."""
    if link.session is not None and has_qos_2(run.first_bytes):
        _append_once(broker, link, link.session, run, forbidden)
        return
    fault = broker.ingest.add(link, run, forbidden, link.owner)
    if fault is not None:
        raise fault


def _append_once(
    broker: Server, link: Link, session: Session, run: Publishes, forbidden: Collection[bytes]
) -> None:
    """A run with publishes at QoS 2. Their packet ids may only be taken by what is really appended."""
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
    """Publish the will of a client that left, with its key in the record; `done` hears whether it is in the log.
    What could never be published counts as done."""
    client_id = session_key.partition("\0")[0]
    try:
        code = broker.router.code(will.topic, broker.router.shares.owner(session_key))
        block = with_will_key(header_block(will.properties), key)
    except MqttError as error:
        broker.log.warning("will of client %r is left out: %s", client_id, error)
        done(True)
        return
    if code < 0:
        broker.log.warning("will of client %r is refused: %s", client_id, Reason(-code).name)
        done(True)
        return
    # Acknowledged regardless of its QoS: what is kept of the will goes when its record is durable.
    row = PublishRow(0x30 | will.qos << 1 | will.retain, will.topic.encode(), block, will.payload, _PUBACK)
    run = Publishes.of([row])
    if broker.retaining.over_limit(run):
        broker.log.warning("will of client %r is published, but there is no room to retain it", client_id)
        run = Publishes.of([row._replace(first=row.first & ~FLAG_RETAIN)])
    broker.ingest.add(_Departed(client_id, done), run)


class _Departed:
    """Stands in for the connection of a client whose will is published."""

    level = MQTT_5
    exactly_once = True

    def __init__(self, client_id: str, done: Callable[[bool], None]) -> None:
        self.submitted_bytes = 0
        self._client_id = client_id
        self._done = done

    def __repr__(self) -> str:
        return f"the will of client {self._client_id!r}"

    def bring(self, topics: list[bytes]) -> bool:
        """Wills are not gathered."""
        return False

    def admitted(self, count: int) -> None:
        """Neither."""

    def acknowledge(self, data: bytes, count: int) -> None:
        """Nobody else waits for it."""

    def settled(self, acknowledgements: bytes, reason: int) -> None:
        self._done(reason == 0)

    def refuse(self, message: str) -> None:
        """It was logged."""

    def hold(self) -> None:
        """Wills come one a client at most."""

    def release(self, portion: int) -> None:
        """Nothing was held."""
