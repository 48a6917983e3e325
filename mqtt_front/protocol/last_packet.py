"""Last packet: the CONNACK or DISCONNECT with which the server ends a connection, and what it explains."""

from mqtt_front.codec import packets
from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.packets import MQTT_5
from mqtt_front.codec.properties import NO_PROPERTIES, Properties
from mqtt_front.reasons import Reason, connack_code_3, connack_reason

_REDIRECTS = (Reason.USE_ANOTHER_SERVER, Reason.SERVER_MOVED)
_REASON_STRING_MAX = 200
_NOT_EXPLAINED = frozenset((
    Reason.BAD_USER_NAME_OR_PASSWORD,
    Reason.NOT_AUTHORIZED,
    Reason.BANNED,
    Reason.BAD_AUTHENTICATION_METHOD,
    Reason.SESSION_TAKEN_OVER,
))  # fmt: skip
"""A client that is not admitted learns nothing about others, nor the reason."""


def last_packet(
    kind: type[packets.Connack | packets.Disconnect],
    level: int,
    reason: Reason,
    message: str,
    server_reference: str | None,
    packet_bytes: int,
) -> bytes | None:
    """Return the encoded packet, None if the protocol level has none for the reason.

    For MQTT 5 it carries `message` and `server_reference` where the reason permits; both are omitted if they exceed the
    maximum packet size of the client, `packet_bytes` [MQTT-3.2.2-19, MQTT-3.14.2-3]."""
    if level < MQTT_5:
        code = connack_code_3(reason) if kind is packets.Connack else None
        return None if code is None else encode_packet(packets.Connack(False, code), level)
    reference = server_reference if reason in _REDIRECTS else None
    text = None if reason in _NOT_EXPLAINED else message[:_REASON_STRING_MAX].replace("\0", "")
    for properties in (Properties(reason_string=text, server_reference=reference), NO_PROPERTIES):
        packet: packets.Packet
        if kind is packets.Connack:
            packet = packets.Connack(False, connack_reason(reason), properties)
        else:
            packet = packets.Disconnect(reason, properties)
        data = encode_packet(packet, MQTT_5)
        if len(data) <= packet_bytes:
            return data
    return None
