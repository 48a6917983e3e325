"""Deliveries and acknowledgements in numbers have the bytes that one packet at a time would have. A native twin has to
pass this file, too."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.fields import text
from mqtt_front.codec.frame import frame_acknowledgements, frame_publishes, publish_size
from mqtt_front.codec.packets import Puback, Publish, Pubrec
from mqtt_front.codec.properties import write_properties
from tests.support.mqtt_packets import publishes


@pytest.mark.parametrize("level", [4, 5])
@given(st.data())
def test_publishes_are_framed_as_they_would_be_one_by_one(level: int, data: st.DataObject) -> None:
    packets = data.draw(st.lists(publishes(level), max_size=6))
    framed = frame_publishes(
        [encode_packet(packet, level)[0] for packet in packets],
        [text(packet.topic) for packet in packets],
        [packet.packet_id for packet in packets],
        [write_properties(packet.properties) for packet in packets] if level == 5 else None,
        [packet.payload for packet in packets],
    )
    assert framed == b"".join(encode_packet(packet, level) for packet in packets)


@pytest.mark.parametrize(
    "size", [0, 120, 121, 122, 123, 124, 125, 126, 16_376, 16_377, 16_378, 16_379, 16_380]
)
@pytest.mark.parametrize("qos", [0, 1])
def test_the_size_of_a_delivery_is_known_without_making_it(size: int, qos: int) -> None:
    packet = Publish("a/b", b"x" * size, qos, packet_id=qos)
    for level, block in ((4, b""), (5, b"\0")):
        assert publish_size(text("a/b"), block, size, qos > 0) == len(encode_packet(packet, level))


@given(st.lists(st.integers(1, 65_535), max_size=10), st.sampled_from([0, 0x97]))
def test_acknowledgements_are_framed_as_they_would_be_one_by_one(ids: list[int], reason: int) -> None:
    raw = [packet_id.to_bytes(2, "big") for packet_id in ids]
    for first, kind in ((0x40, Puback), (0x50, Pubrec)):
        expected = b"".join(encode_packet(kind(packet_id, reason), 5) for packet_id in ids)
        assert frame_acknowledgements(first, raw, reason) == expected
