"""The table of properties: each is accepted in the packets that may have it, and refused in all others."""

import pytest

from mqtt_front.codec.fields import Fields, varint
from mqtt_front.codec.properties import (
    NO_PROPERTIES,
    TABLE,
    Carrier,
    Properties,
    Property,
    read_properties,
    write_properties,
)
from mqtt_front.errors import MalformedPacket, MqttError, ProtocolViolation
from mqtt_front.reasons import Reason

PACKETS = [carrier for carrier in Carrier if carrier.value.bit_count() == 1]
# One valid value of each property, as the specification's data types have it.
ENCODED = {
    "payload_format_indicator": "01 01",
    "message_expiry_interval": "02 0000003c",
    "content_type": "03 0001 61",
    "response_topic": "08 0003 612f62",
    "correlation_data": "09 0002 00ff",
    "subscription_identifiers": "0b 8001",
    "session_expiry_interval": "11 ffffffff",
    "assigned_client_identifier": "12 0001 61",
    "server_keep_alive": "13 000a",
    "authentication_method": "15 0001 61",
    "authentication_data": "16 0001 00",
    "request_problem_information": "17 00",
    "will_delay_interval": "18 00000001",
    "request_response_information": "19 01",
    "response_information": "1a 0001 61",
    "server_reference": "1c 0001 61",
    "reason_string": "1f 0001 61",
    "receive_maximum": "21 0001",
    "topic_alias_maximum": "22 0000",
    "topic_alias": "23 0001",
    "maximum_qos": "24 00",
    "retain_available": "25 01",
    "user_properties": "26 0001 61 0001 62",
    "maximum_packet_size": "27 00000001",
    "wildcard_subscription_available": "28 00",
    "subscription_identifier_available": "29 00",
    "shared_subscription_available": "2a 00",
}
VALUES = {
    "subscription_identifiers": (128,),
    "user_properties": (("a", "b"),),
    "response_topic": "a/b",
    "correlation_data": b"\x00\xff",
    "session_expiry_interval": 0xFFFFFFFF,
    "message_expiry_interval": 60,
}


def read(block: bytes, carrier: Carrier) -> Properties:
    return read_properties(Fields(varint(len(block)) + block), carrier)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_property_is_accepted_only_in_its_packet_types(row: Property) -> None:
    block = bytes.fromhex(ENCODED[row.name])
    for carrier in PACKETS:
        if not row.carriers & carrier:
            with pytest.raises(ProtocolViolation) as caught:
                read(block, carrier)
            assert caught.value.reason is Reason.PROTOCOL_ERROR, carrier
            continue
        properties = read(block, carrier)
        if row.name in VALUES:
            assert getattr(properties, row.name) == VALUES[row.name], carrier
        assert write_properties(properties) == varint(len(block)) + block, carrier


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_repeated_property_is_refused_unless_it_may_repeat(row: Property) -> None:
    block = bytes.fromhex(ENCODED[row.name])
    for carrier in PACKETS:
        if not row.carriers & carrier:
            continue
        if row.repeats & carrier:
            assert len(getattr(read(block * 3, carrier), row.name)) == 3
        else:
            with pytest.raises(ProtocolViolation):
                read(block * 2, carrier)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_truncated_property_is_malformed_in_every_packet_type(row: Property) -> None:
    block = bytes.fromhex(ENCODED[row.name])
    for end in range(1, len(block)):
        for carrier in PACKETS:
            with pytest.raises(MalformedPacket) as caught:
                read(block[:end], carrier)
            assert caught.value.reason is Reason.MALFORMED_PACKET


BAD_VALUES = {
    "payload format 2": ("01 02", Carrier.PUBLISH, Reason.PROTOCOL_ERROR),
    "subscription identifier 0": ("0b 00", Carrier.SUBSCRIBE, Reason.PROTOCOL_ERROR),
    "request problem information 2": ("17 02", Carrier.CONNECT, Reason.PROTOCOL_ERROR),
    "receive maximum 0": ("21 0000", Carrier.CONNECT, Reason.PROTOCOL_ERROR),
    "maximum packet size 0": ("27 00000000", Carrier.CONNECT, Reason.PROTOCOL_ERROR),
    "maximum QoS 2": ("24 02", Carrier.CONNACK, Reason.PROTOCOL_ERROR),
    "topic alias 0": ("23 0000", Carrier.PUBLISH, Reason.TOPIC_ALIAS_INVALID),
    "response topic with a wildcard": ("08 0003 612f23", Carrier.PUBLISH, Reason.PROTOCOL_ERROR),
    "unknown identifier": ("04 01", Carrier.PUBLISH, Reason.MALFORMED_PACKET),
    "identifier of two bytes": ("8001 01", Carrier.PUBLISH, Reason.MALFORMED_PACKET),
    "identifier longer than necessary": ("8100 01", Carrier.PUBLISH, Reason.MALFORMED_PACKET),
    "text with U+0000": ("03 0001 00", Carrier.PUBLISH, Reason.MALFORMED_PACKET),
    "name of a user property with a surrogate": (
        "26 0003 eda080 0000",
        Carrier.PUBLISH,
        Reason.MALFORMED_PACKET,
    ),
}


@pytest.mark.parametrize(("block", "carrier", "reason"), BAD_VALUES.values(), ids=BAD_VALUES.keys())
def test_invalid_property_values_are_refused_with_their_reason(
    block: str, carrier: Carrier, reason: Reason
) -> None:
    with pytest.raises(MqttError) as caught:
        read(bytes.fromhex(block), carrier)
    assert caught.value.reason is reason


def test_user_properties_keep_order_and_duplicates() -> None:
    pairs = (("b", "1"), ("a", "2"), ("b", "1"))
    written = write_properties(Properties(user_properties=pairs))
    assert read_properties(Fields(written), Carrier.PUBLISH).user_properties == pairs


def test_property_block_longer_than_its_packet_is_malformed() -> None:
    with pytest.raises(MalformedPacket):
        read_properties(Fields(b"\x05\x01\x01"), Carrier.PUBLISH)


def test_empty_property_block_is_one_byte() -> None:
    assert write_properties(NO_PROPERTIES) == write_properties(Properties()) == b"\0"
    assert read_properties(Fields(b"\0"), Carrier.PUBLISH) is NO_PROPERTIES
