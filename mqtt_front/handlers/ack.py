"""PUBACK, PUBREC, PUBREL and PUBCOMP from a client, and the answers that QoS 2 wants.

An answer that lets the client forget something waits until the session is durable without it: a server that is killed
and comes back would otherwise begin the exchange again with a client that takes it for another message.
"""

from collections import Counter
from collections.abc import Sequence

from mqtt_front.codec.frame import frame_acknowledgements
from mqtt_front.codec.packets import MQTT_5, PacketType
from mqtt_front.handlers.server import Server
from mqtt_front.net.client_protocol import Link
from mqtt_front.protocol.events import Acknowledgements
from mqtt_front.reasons import Reason
from mqtt_front.sessions.session import Session

_PUBREL, _PUBCOMP = 0x62, 0x70


def acknowledged(broker: Server, link: Link, event: Acknowledgements) -> None:
    """The client acknowledged deliveries, or continues with the exchange of a QoS 2 publish or delivery."""
    session = link.session
    assert session is not None
    if event.kind is PacketType.PUBACK:
        broker.moved(session, session.acknowledged(event.packet_ids))
    elif event.kind is PacketType.PUBREC and event.reason >= 0x80:
        broker.moved(session, session.acknowledged(event.packet_ids, qos=2))
    elif event.kind is PacketType.PUBREC:
        known = session.accepted(event.packet_ids)
        _answer(broker, link, session, _PUBREL, event.packet_ids, known)
    elif event.kind is PacketType.PUBREL:
        link.connection.unreleased.difference_update(event.packet_ids)
        known = session.forget_received(event.packet_ids)
        _answer(broker, link, session, _PUBCOMP, event.packet_ids, known)
    else:
        broker.moved(session, session.completed(event.packet_ids))


def release_again(link: Link, session: Session) -> None:
    """After a reconnect: PUBREL for what the client has and was perhaps not told to forget [MQTT-4.4.0-1]."""
    link.deliver(frame_acknowledgements(_PUBREL, _raw(list(session.released))), len(session.released))


def _answer(
    broker: Server, link: Link, session: Session, first: int, packet_ids: Sequence[int], known: list[int]
) -> None:
    """Answer in the order that was asked, once what is known is durable; MQTT 5 is told which ids nobody knows."""
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
    if known:
        broker.sessions.save(session, lambda: link.deliver(data, len(packet_ids)))
    else:
        link.deliver(data, len(packet_ids))


def _raw(packet_ids: Sequence[int]) -> list[bytes]:
    return [packet_id.to_bytes(2, "big") for packet_id in packet_ids]
