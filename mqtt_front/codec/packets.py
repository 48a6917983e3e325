"""Control packets of MQTT 3.1, 3.1.1 and 5 as frozen values; `decode` and `encode` convert them from and to bytes.

Fields of MQTT 5 keep their defaults for older clients. Payloads and passwords are left out of `repr`, so that no log
line contains them."""

import enum
from dataclasses import dataclass, field

from mqtt_front.codec.properties import NO_PROPERTIES, Properties

MQTT_3_1 = 3
MQTT_3_1_1 = 4
MQTT_5 = 5
PROTOCOL_NAMES = {MQTT_3_1: "MQIsdp", MQTT_3_1_1: "MQTT", MQTT_5: "MQTT"}
"""Protocol name of each protocol level."""
BRIDGE_BIT = 0x80
"""Bit in the protocol level that marks a bridge before MQTT 5. Not in the specification, but in mosquitto
(`try_private`)."""


class PacketType(enum.IntEnum):
    """High half of the first byte of a packet."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


@dataclass(frozen=True, slots=True)
class Will:
    """Message that the server publishes when the connection ends without DISCONNECT."""

    topic: str
    payload: bytes = field(repr=False)
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Connect:
    """CONNECT: the first packet of a client."""

    client_id: str = ""
    level: int = MQTT_3_1_1
    clean_start: bool = True
    """"Clean session" before MQTT 5, where it also means that the session ends with the connection."""
    keep_alive: int = 0
    """Keep alive in seconds; 0 for none."""
    will: Will | None = None
    user_name: str | None = None
    password: bytes | None = field(default=None, repr=False)
    properties: Properties = NO_PROPERTIES
    bridge: bool = False
    """Whether the client is a bridge: it receives no message that it has published, and retained ones with RETAIN."""


@dataclass(frozen=True, slots=True)
class Connack:
    """CONNACK. reason: a reason code of MQTT 5 or a return code of MQTT 3, by the level of the client."""

    session_present: bool = False
    reason: int = 0
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Publish:
    """PUBLISH: a message, in either direction."""

    topic: str
    payload: bytes = field(default=b"", repr=False)
    qos: int = 0
    retain: bool = False
    duplicate: bool = False
    packet_id: int = 0
    """0 at QoS 0, and only then."""
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Common fields of PUBACK, PUBREC, PUBREL and PUBCOMP."""

    packet_id: int
    reason: int = 0
    properties: Properties = NO_PROPERTIES


class Puback(Acknowledgement):
    """PUBACK: answer to a PUBLISH at QoS 1."""

    __slots__ = ()


class Pubrec(Acknowledgement):
    """PUBREC: answer to a PUBLISH at QoS 2."""

    __slots__ = ()


class Pubrel(Acknowledgement):
    """PUBREL: answer to a PUBREC; the packet id may be released."""

    __slots__ = ()


class Pubcomp(Acknowledgement):
    """PUBCOMP: answer to a PUBREL; the packet id is released."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Request:
    """Topic filter of a SUBSCRIBE with its options."""

    topic_filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(frozen=True, slots=True)
class Subscribe:
    """SUBSCRIBE: one or more topic filters."""

    packet_id: int
    requests: tuple[Request, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Suback:
    """SUBACK: one reason for each filter, in order."""

    packet_id: int
    reasons: tuple[int, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """UNSUBSCRIBE: one or more topic filters."""

    packet_id: int
    topic_filters: tuple[str, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Unsuback:
    """UNSUBACK: one reason for each filter; not on the wire before MQTT 5."""

    packet_id: int
    reasons: tuple[int, ...] = ()
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Pingreq:
    """PINGREQ."""


@dataclass(frozen=True, slots=True)
class Pingresp:
    """PINGRESP."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """DISCONNECT: the last packet of a connection; before MQTT 5 only from the client."""

    reason: int = 0
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Auth:
    """AUTH: one step of an enhanced authentication."""

    reason: int = 0
    properties: Properties = NO_PROPERTIES


Packet = (
    Connect
    | Connack
    | Publish
    | Puback
    | Pubrec
    | Pubrel
    | Pubcomp
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)
