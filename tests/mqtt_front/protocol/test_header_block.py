"""Properties are stored in the record and restored unchanged."""

import pytest
from hypothesis import given

from mqtt_front.codec.fields import Fields
from mqtt_front.codec.properties import Carrier, Properties, read_block, write_block
from mqtt_front.errors import MalformedPacket, ProtocolViolation
from mqtt_front.protocol.events import Publishes, PublishRow
from mqtt_front.protocol.header_block import (
    NO_HEADERS,
    header_block,
    publish_headers,
    stored_headers,
    with_publisher,
)
from mqtt_front.reasons import Reason
from tests.support.mqtt_packets import properties
from timestone.record import Header, HeaderKind, decode_headers, encode_headers

FULL = Properties(
    payload_format_indicator=1,
    content_type="application/json",
    response_topic="answers/1",
    correlation_data=b"\x00\x01",
    user_properties=(("b", "1"), ("a", ""), ("b", "1")),
)


@given(properties(Carrier.WILL))
def test_publisher_properties_are_forwarded_unaltered_and_in_order(sent: Properties) -> None:
    stored = stored_headers(header_block(sent))
    forwarded = read_block(Fields(stored.properties), Carrier.PUBLISH)
    assert stored.expiry_s == sent.message_expiry_interval
    for name in (
        "payload_format_indicator",
        "content_type",
        "response_topic",
        "correlation_data",
        "user_properties",
    ):
        assert getattr(forwarded, name) == getattr(sent, name)


def test_topic_alias_is_returned_and_not_stored() -> None:
    headers = publish_headers(write_block(Properties(topic_alias=7)))
    assert headers == (b"", 7)


def test_large_blocks_work_like_small_ones() -> None:
    large = Properties(user_properties=(("name", "v" * 1000),))
    headers = publish_headers(write_block(large))
    assert read_block(Fields(stored_headers(headers.block).properties), Carrier.PUBLISH) == large


def test_subscription_identifiers_and_invalid_properties_are_refused() -> None:
    with pytest.raises(ProtocolViolation):
        publish_headers(write_block(Properties(subscription_identifiers=(1,))))
    with pytest.raises(MalformedPacket):
        publish_headers(b"\x7f\x00")


def test_properties_beyond_the_header_limit_are_too_large() -> None:
    pairs = tuple(("name", "v" * 60_000) for _ in range(2))
    with pytest.raises(ProtocolViolation) as caught:
        publish_headers(write_block(Properties(user_properties=pairs)))
    assert caught.value.reason is Reason.PACKET_TOO_LARGE


def test_headers_of_other_producers_are_forwarded_as_valid_mqtt_text() -> None:
    block = encode_headers([Header(HeaderKind.USER, "k", b"\x00\xff"), Header(HeaderKind.KEY, "", b"key")])
    forwarded = read_block(Fields(stored_headers(block).properties), Carrier.PUBLISH)
    assert forwarded.user_properties == (("k", "\\x00\\xff"),)


def test_publisher_is_stored_first_and_never_forwarded() -> None:
    block = header_block(FULL)
    plain, rich = PublishRow(0x30, b"t", b"", b"plain", b""), PublishRow(0x30, b"t", block, b"rich", b"")
    named = list(with_publisher(Publishes.of([plain, rich]), "me").rows())
    assert [row.payload for row in named] == [b"plain", b"rich"]
    for row in named:
        stored = stored_headers(row.headers)
        assert stored.publisher == "me"
        assert b"me" not in stored.properties
    assert decode_headers(named[1].headers)[1:] == decode_headers(block)


def test_a_plain_record_has_no_headers() -> None:
    assert stored_headers(b"") is NO_HEADERS
    assert header_block(Properties()) == b""
