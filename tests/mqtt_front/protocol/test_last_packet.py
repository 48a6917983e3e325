"""What a client learns when the server ends its connection."""

import pytest

from mqtt_front.codec.packets import Connack, Disconnect, Packet
from mqtt_front.codec.properties import Properties
from mqtt_front.protocol.last_packet import last_packet
from mqtt_front.reasons import Reason
from tests.support.mqtt_clients import parse

WHY = Properties(reason_string="why")
REFERENCE = "other:1883"


def sent(
    kind: type[Connack | Disconnect],
    reason: Reason,
    message: str = "why",
    level: int = 5,
    limit: int = 1 << 20,
) -> list[Packet]:
    data = last_packet(kind, level, reason, message, REFERENCE, limit)
    return [] if data is None else parse(data, level)[0]


@pytest.mark.parametrize(
    ("reason", "code", "properties"),
    [
        (Reason.NOT_AUTHORIZED, 0x87, Properties()),
        (Reason.SERVER_MOVED, 0x9D, Properties(reason_string="why", server_reference=REFERENCE)),
        (Reason.KEEP_ALIVE_TIMEOUT, 0x80, WHY),  # CONNACK has no code for it
        (Reason.SERVER_SHUTTING_DOWN, 0x88, WHY),
    ],
)
def test_connack_explains_as_much_as_the_reason_permits(
    reason: Reason, code: int, properties: Properties
) -> None:
    assert sent(Connack, reason) == [Connack(False, code, properties)]


def test_disconnect_has_the_reason_and_the_message() -> None:
    assert sent(Disconnect, Reason.PROTOCOL_ERROR, "a\0b" + "x" * 300) == [
        Disconnect(Reason.PROTOCOL_ERROR, Properties(reason_string="ab" + "x" * 197))
    ]


def test_properties_are_omitted_when_they_exceed_the_maximum_packet_size() -> None:
    assert sent(Disconnect, Reason.PROTOCOL_ERROR, "a long story", limit=10) == [
        Disconnect(Reason.PROTOCOL_ERROR)
    ]
    assert sent(Connack, Reason.SERVER_BUSY, limit=4) == []


def test_mqtt_3_has_codes_for_a_refused_connect_only() -> None:
    assert sent(Connack, Reason.SERVER_BUSY, level=4) == [Connack(False, 3)]
    assert sent(Disconnect, Reason.SERVER_BUSY, level=4) == []
