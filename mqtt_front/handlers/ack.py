"""PUBACK, PUBREC, PUBREL and PUBCOMP from a client, and the answers of QoS 2. The answers to its publishes are decided
in `ingest.puback`.

An answer that lets the client release a packet id waits until the session is durable without it. Otherwise a server
that is killed and restarted would begin the exchange again, and the client would take it for another message."""

import functools
from collections import Counter
from collections.abc import Iterable, Sequence

from mqtt_front.codec.frame import frame_acknowledgements
from mqtt_front.codec.packets import MQTT_3_1, MQTT_5, PacketType
from mqtt_front.errors import ProtocolViolation
from mqtt_front.handlers.server import Server
from mqtt_front.net.client_protocol import ClientProtocol
from mqtt_front.protocol.events import Acknowledgements
from mqtt_front.reasons import Reason
from mqtt_front.sessions.session import Session

_PUBREL, _PUBCOMP = 0x62, 0x70
_DUP = 0x08
"""Set in a repeated PUBREL of MQTT 3.1 (section 2.1); later versions reserve the bit."""


def acknowledged(broker: Server, link: ClientProtocol, event: Acknowledgements) -> None:
    """Handle acknowledgements of deliveries, or the next step of a QoS 2 exchange in either direction."""
    session = link.session
    assert session is not None
    if event.kind is PacketType.PUBREL:
        link.connection.unreleased.difference_update(event.packet_ids)
        known = session.forget_received(event.packet_ids)
        _answer(broker, link, session, _PUBCOMP, event.packet_ids, known)
    elif event.kind is PacketType.PUBREC and event.reason < 0x80:
        known = session.accepted(event.packet_ids)
        if len(known) < len(event.packet_ids):
            _check(broker, link, session, event, set(event.packet_ids).difference(known))
        _answer(broker, link, session, _PUBREL, event.packet_ids, known)
    else:
        if event.kind is PacketType.PUBCOMP:
            unmatched = session.completed(event.packet_ids)
        else:
            qos = 1 if event.kind is PacketType.PUBACK else 2
            unmatched = session.acknowledged(event.packet_ids, qos)
        broker.moved(session, len(event.packet_ids) - len(unmatched))
        if unmatched:
            _check(broker, link, session, event, unmatched)


def _check(
    broker: Server, link: ClientProtocol, session: Session, event: Acknowledgements, unmatched: Iterable[int]
) -> None:
    """Raise ProtocolViolation if a delivery with one of these packet ids waits for another acknowledgement.

    A packet id without a delivery is not a violation [MQTT-4.3.3]: the delivery may have ended
    with an earlier connection.
    """
    for packet_id in unmatched:
        expected = session.awaits(packet_id)
        if expected is not None:
            message = f"invalid acknowledgement of packet id {packet_id}: expected {expected.name}"
            raise ProtocolViolation(f"{message}, got {event.kind.name}")
    message = f"{link!r} sent {event.kind.name} for a packet id that no delivery has; ignored"
    broker.throttled_log.warn(f"unmatched acknowledgement {link.client_id}", message)


def release_again(link: ClientProtocol, session: Session) -> None:
    """After a reconnect: PUBREL for what the client has and was perhaps not told to forget [MQTT-4.4.0-1]."""
    if not session.released:
        return
    first = _PUBREL | _DUP if link.level == MQTT_3_1 else _PUBREL
    link.deliver(frame_acknowledgements(first, _raw(list(session.released))), len(session.released))


def _answer(
    broker: Server,
    link: ClientProtocol,
    session: Session,
    first: int,
    packet_ids: Sequence[int],
    known: list[int],
) -> None:
    """Answer in order, when the known ids are durable; MQTT 5 gets a reason for unknown ids. An unknown id may have
    been known a moment ago: its answer waits for the same save."""
    if len(known) == len(packet_ids) or link.level < MQTT_5:
        data = frame_acknowledgements(first, _raw(packet_ids))
    else:
        left = Counter(known)
        parts = []
        for packet_id in packet_ids:
            reason = 0 if left[packet_id] > 0 else Reason.PACKET_IDENTIFIER_NOT_FOUND
            left[packet_id] -= 1
            parts.append(frame_acknowledgements(first, _raw([packet_id]), reason))
        data = b"".join(parts)
    answer = functools.partial(link.deliver, data, len(packet_ids))
    if known:
        broker.sessions.save(session, answer)
    else:
        broker.sessions.once_saved(session.key, answer)


def _raw(packet_ids: Sequence[int]) -> list[bytes]:
    return [packet_id.to_bytes(2, "big") for packet_id in packet_ids]
