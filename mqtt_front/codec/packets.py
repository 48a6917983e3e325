"""The control packets of MQTT 3.1, 3.1.1 and 5 as frozen values. Their bytes are the business of `decode` and
`encode`.

Fields that only MQTT 5 has keep their defaults for older clients. Payloads and passwords stay out of `repr`,
so that no log line can ever show them.
"""

import enum
from dataclasses import dataclass, field

from mqtt_front.codec.properties import NO_PROPERTIES, Properties

MQTT_3_1 = 3
MQTT_3_1_1 = 4
MQTT_5 = 5
PROTOCOL_NAMES = {MQTT_3_1: "MQIsdp", MQTT_3_1_1: "MQTT", MQTT_5: "MQTT"}
"""The protocol name that belongs to each protocol level."""
BRIDGE_BIT = 0x80
"""In the protocol level of a bridge, before MQTT 5. It is in no specification, but in mosquitto (`try_private`)."""


class PacketType(enum.IntEnum):
    """The high half of a packet's first byte."""

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
    """The message that the server publishes when the connection ends without a word."""

    topic: str
    payload: bytes = field(repr=False)
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Connect:
    """A client introduces itself."""

    client_id: str = ""
    level: int = MQTT_3_1_1
    clean_start: bool = True
    """Named "clean session" before MQTT 5, where it also means: forget everything at the end."""
    keep_alive: int = 0
    """Seconds; 0 for none."""
    will: Will | None = None
    user_name: str | None = None
    password: bytes | None = field(default=None, repr=False)
    properties: Properties = NO_PROPERTIES
    bridge: bool = False
    """Another server is the client: it wants nothing back that it has published, and what is retained marked so."""


@dataclass(frozen=True, slots=True)
class Connack:
    """`reason` is a reason code of MQTT 5, or the return code of MQTT 3, whichever the client speaks."""

    session_present: bool = False
    reason: int = 0
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Publish:
    """A message, in either direction."""

    topic: str
    payload: bytes = field(default=b"", repr=False)
    qos: int = 0
    retain: bool = False
    duplicate: bool = False
    packet_id: int = 0
    """0 at QoS 0, never otherwise."""
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """What PUBACK, PUBREC, PUBREL and PUBCOMP have in common."""

    packet_id: int
    reason: int = 0
    properties: Properties = NO_PROPERTIES


class Puback(Acknowledgement):
    """Answers a PUBLISH at QoS 1."""

    __slots__ = ()


class Pubrec(Acknowledgement):
    """Answers a PUBLISH at QoS 2: received."""

    __slots__ = ()


class Pubrel(Acknowledgement):
    """Answers a PUBREC: the packet id may be forgotten."""

    __slots__ = ()


class Pubcomp(Acknowledgement):
    """Answers a PUBREL: it was."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Request:
    """One topic filter of a SUBSCRIBE, with its options."""

    topic_filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Asks for one or more subscriptions."""

    packet_id: int
    requests: tuple[Request, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Suback:
    """One reason for each filter of the SUBSCRIBE, in order."""

    packet_id: int
    reasons: tuple[int, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Ends subscriptions."""

    packet_id: int
    topic_filters: tuple[str, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Unsuback:
    """One reason for each filter of the UNSUBSCRIBE; none of them is on the wire before MQTT 5."""

    packet_id: int
    reasons: tuple[int, ...] = ()
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Pingreq:
    """Are you there?"""


@dataclass(frozen=True, slots=True)
class Pingresp:
    """Yes."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """The last word of a connection; before MQTT 5 only a client says it."""

    reason: int = 0
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Auth:
    """One step of an enhanced authentication."""

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
