"""Packets as columns, and the columns as packets again."""

import pytest

from timestone_bench.mqtt.load.client_protocols import Mqtt
from timestone_bench.mqtt.load.packet_template import STAMP, PacketTemplate


def test_what_is_written_in_columns_stands_in_the_packets() -> None:
    template = Mqtt().publication("bench/x/000000", 40, 1, 6)
    data = template.buffer(3)
    rows = template.packets(data, 3)
    rows["sender"], rows["number"], rows["sent"], rows["id"] = 5, [7, 8, 9], [70, 80, 90], [1, 2, 65_535]
    rows["topic"] = [b"000001", b"000002", b"000003"]
    size = template.size_bytes
    for place, (topic, number, packet_id) in enumerate([(b"1", 7, 1), (b"2", 8, 2), (b"3", 9, 65_535)]):
        packet = bytes(data[place * size : (place + 1) * size])
        assert packet[2:].startswith(b"\x00\x0ebench/x/00000" + topic + packet_id.to_bytes(2, "big"))
        assert STAMP.unpack_from(packet, template.stamp_at) == (5, number, number * 10)


def test_the_time_of_a_single_packet_is_written_like_a_column_of_one() -> None:
    template = Mqtt().publication("t", 40, 1)
    one, many = template.buffer(3), template.buffer(3)
    template.stamp_time(one, 1, 70)
    template.packets(many, 3)["sent"][1] = 70
    assert one == many


def test_a_payload_without_room_for_the_stamp_is_refused() -> None:
    with pytest.raises(ValueError, match="needs 16 bytes"):
        PacketTemplate(b"x" * 15, 0, 15)
