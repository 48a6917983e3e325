"""What a load sends and understands, against the front's own codec."""

import pytest

from mqtt_front.codec import packets
from mqtt_front.codec.encode import encode_packet
from timestone_bench.mqtt.load.client_protocols import CLIENT_PROTOCOLS, Mqtt, Nats, publish


@pytest.mark.parametrize("size", [0, 100, 127, 128, 20_000])
@pytest.mark.parametrize("qos", [0, 1])
def test_mqtt_publishes_are_those_of_the_specification(size: int, qos: int) -> None:
    expected = packets.Publish("t", b"x" * size, qos, packet_id=7 if qos else 0)
    assert publish(b"t", 7, b"x" * size, qos) == encode_packet(expected, 4)


def test_mqtt_connects_and_subscribes_as_the_specification_says() -> None:
    assert Mqtt().hello("c") == encode_packet(packets.Connect("c", 4, keep_alive=65_535), 4)
    wanted = packets.Subscribe(1, (packets.Request("a/+", 1),))
    assert Mqtt().subscribe("a/+", 1) == encode_packet(wanted, 4)


def test_a_server_that_says_no_is_not_a_welcome() -> None:
    assert not Mqtt().is_welcome(b"\x20\x02")
    assert Mqtt().is_welcome(b"\x20\x02\x00\x00")
    with pytest.raises(ValueError, match="refused the connection"):
        Mqtt().is_welcome(b"\x20\x02\x00\x05")
    with pytest.raises(ValueError, match="refused the subscription"):
        Mqtt().is_subscribed(b"\x90\x03\x00\x01\x80")
    with pytest.raises(ValueError, match="refused"):
        Nats().is_welcome(b"INFO {}\r\n-ERR 'Authorization Violation'\r\n")


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("scheme", list(CLIENT_PROTOCOLS))
def test_the_digits_of_the_topic_are_where_the_form_says(scheme: str, qos: int) -> None:
    template = CLIENT_PROTOCOLS[scheme].publication("bench/x/123456", 100, qos, 6)
    assert template.topic_at is not None
    assert template.packet[template.topic_at : template.topic_at + 6] == b"123456"
    assert template.packet[template.stamp_at :].startswith(b'{"celsius"')


def test_nats_speaks_of_subjects() -> None:
    assert Nats().subscribe("bench/x/+", 0).startswith(b"SUB bench.x.* 1\r\n")
    assert Nats().publication("bench/x", 16, 0).packet.startswith(b"PUB bench.x 16\r\n")
    assert Nats().delivery("bench/x", 16, 0).packet.startswith(b"MSG bench.x 1 16\r\n")
