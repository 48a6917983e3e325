"""Primitive types of MQTT (section 1.5): integers, variable byte integers, strings, binary data. The read cursor
checks every length before it is used and raises MalformedPacket."""

import re

from mqtt_front.errors import MalformedPacket
from mqtt_front.reasons import Reason

VARINT_MAX = 268_435_455
LENGTH_MAX = 65_535

_NON_CHARACTERS = "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
# U+0000 is forbidden by section 1.5.4; control characters and non-characters may be refused. They are, because
# topics and client ids appear in logs and terminals.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef" + _NON_CHARACTERS + "]")


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int] | None:
    """Return the variable byte integer at `at` and the position after it; None if it extends past `end`. Raises
    MalformedPacket for a fifth byte or an encoding longer than necessary [MQTT-1.5.5-1]."""
    value = shift = 0
    for place in range(at, min(end, at + 4)):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift:
                raise MalformedPacket("a variable byte integer is longer than necessary")
            return value, place + 1
        shift += 7
    if end - at >= 4:
        raise MalformedPacket("a variable byte integer has more than four bytes")
    return None


def varint(value: int) -> bytes:
    """Encode `value` as a variable byte integer. Raises ValueError if it is over VARINT_MAX."""
    if value < 128:
        return bytes((value,))
    if value > VARINT_MAX:
        raise ValueError(f"invalid packet: expected at most {VARINT_MAX} bytes after its length, got {value}")
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def binary(value: bytes) -> bytes:
    """Encode `value` with a two-byte length prefix. Raises ValueError if it is too long."""
    if len(value) > LENGTH_MAX:
        raise ValueError(f"{len(value)} bytes do not fit behind a two-byte length")
    return len(value).to_bytes(2, "big") + value


def text(value: str) -> bytes:
    """Encode `value` as UTF-8 with a two-byte length prefix. Raises ValueError if it is too long."""
    return binary(value.encode())


def decode_text(raw: bytes) -> str:
    """Decode a UTF-8 string of MQTT: no surrogates, no overlong forms, no U+0000 [MQTT-1.5.4-1, -2], and no control
    characters or non-characters, which a receiver may refuse. A byte order mark is kept [MQTT-1.5.4-3]."""
    try:
        value = raw.decode("utf-8", "strict")
    except UnicodeDecodeError as error:
        raise MalformedPacket(f"a string is not valid UTF-8: {error.reason}") from None
    if (found := _FORBIDDEN.search(value)) is not None:
        raise MalformedPacket(f"a string contains U+{ord(found[0]):04X}")
    return value


class Fields:
    """Cursor over the fields of one packet, `data[at:end]`."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self.data = data
        self.at = at
        self.end = len(data) if end is None else end

    def __bool__(self) -> bool:
        """Return whether bytes remain."""
        return self.at < self.end

    def take(self, length: int) -> bytes:
        """Return the next `length` bytes."""
        start, self.at = self.at, self.at + length
        if self.at > self.end:
            raise MalformedPacket(f"a field exceeds its packet by {self.at - self.end} bytes")
        return self.data[start : self.at]

    def u8(self) -> int:
        return self.take(1)[0]

    def u16(self) -> int:
        return int.from_bytes(self.take(2), "big")

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def varint(self) -> int:
        found = read_varint(self.data, self.at, self.end)
        if found is None:
            raise MalformedPacket("a variable byte integer exceeds its packet")
        value, self.at = found
        return value

    def binary(self) -> bytes:
        return self.take(self.u16())

    def text(self) -> str:
        return decode_text(self.binary())

    def rest(self) -> bytes:
        return self.take(self.end - self.at)

    def sub(self, length: int) -> "Fields":
        """Return a cursor over the next `length` bytes and move this one after them."""
        start = self.at
        self.take(length)
        return Fields(self.data, start, self.at)

    def packet_id(self) -> int:
        """Read a packet identifier, which is never zero [MQTT-2.2.1-3]."""
        value = self.u16()
        if value == 0:
            raise MalformedPacket("packet identifier 0", Reason.PROTOCOL_ERROR)
        return value

    def finish(self) -> None:
        """Raise MalformedPacket if bytes remain."""
        if self.at != self.end:
            raise MalformedPacket(f"{self.end - self.at} bytes follow the last field of a packet")
