"""Client id in the first bytes of a connection."""

import pytest

from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.packets import Connect, Pingreq, Will
from mqtt_front.protocol.arrival import client_id_of


@pytest.mark.parametrize("level", [3, 4, 5])
def test_client_id_is_known_when_the_connect_is_whole(level: int) -> None:
    packet = encode_packet(Connect("device", level, clean_start=True, will=Will("t", b"x" * 200)), level)
    for end in range(len(packet)):
        assert client_id_of(packet[:end], connect_bytes=1000) is None
    assert client_id_of(packet + b"\xc0\0", connect_bytes=1000) == "device"


@pytest.mark.parametrize(
    "data",
    [
        encode_packet(Pingreq(), 4),
        b"\x16\x03",
        b"GET ",
        b"\x10\xff\xff\xff\xff",
        b"\x10\x02ab",
        b"\x10\x80\x40",
    ],
)
def test_what_does_not_begin_with_a_connect_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="invalid"):
        client_id_of(data, connect_bytes=1000)
