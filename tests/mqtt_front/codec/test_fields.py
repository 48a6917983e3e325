"""Primitive types: integers, strings and binary data, with verified lengths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtt_front.codec.fields import VARINT_MAX, Fields, binary, decode_text, read_varint, text, varint
from mqtt_front.errors import MalformedPacket
from mqtt_front.reasons import Reason

VARINTS = {0: "00", 127: "7f", 128: "8001", 16_383: "ff7f", 16_384: "808001", VARINT_MAX: "ffffff7f"}


def test_varint_is_refused_when_it_would_take_five_bytes() -> None:
    assert len(varint(VARINT_MAX)) == 4
    with pytest.raises(ValueError, match="expected at most 268435455 bytes"):
        varint(VARINT_MAX + 1)


@pytest.mark.parametrize(("value", "encoded"), VARINTS.items())
def test_varint_is_encoded_as_in_the_specification(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert varint(value) == data
    assert read_varint(data, 0, len(data)) == (value, len(data))


@given(st.integers(0, VARINT_MAX), st.binary(max_size=3))
def test_varint_is_decoded_to_its_input_and_leaves_the_following_bytes(value: int, tail: bytes) -> None:
    data = varint(value) + tail
    assert read_varint(data, 0, len(data)) == (value, len(data) - len(tail))


@pytest.mark.parametrize("encoded", ["", "80", "ffff", "ffffff"])
def test_truncated_varint_is_incomplete(encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert read_varint(data, 0, len(data)) is None


@pytest.mark.parametrize("encoded", ["ffffffff7f", "80808080", "8080808001", "8000", "ff00", "80808000"])
def test_varint_too_long_or_longer_than_necessary_is_malformed(encoded: str) -> None:
    data = bytes.fromhex(encoded)
    with pytest.raises(MalformedPacket):
        read_varint(data, 0, len(data))


GOOD_TEXT = {
    "empty": b"",
    "latin": "Grüße".encode(),
    "beyond the basic plane": "A\U0002a6d4".encode(),
    "byte order mark is a character": b"\xef\xbb\xbfa",
}
BAD_TEXT = {
    "U+0000": b"a\x00b",
    "surrogate": b"\xed\xa0\x80",
    "surrogate pair": b"\xed\xa0\x80\xed\xb0\x80",
    "overlong slash": b"\xc0\xaf",
    "overlong null": b"\xc0\x80",
    "beyond unicode": b"\xf4\x90\x80\x80",
    "cut short": b"\xe2\x82",
    "lone continuation": b"\x80",
    "control character": b"a\x01",
    "delete": b"\x7f",
    "control character of two bytes": b"\xc2\x9f",
    "non-character U+FFFF": b"\xef\xbf\xbf",
    "non-character U+FDD0": b"\xef\xb7\x90",
    "non-character of plane 1": "\U0001fffe".encode(),
}


@pytest.mark.parametrize("raw", GOOD_TEXT.values(), ids=GOOD_TEXT.keys())
def test_text_is_encoded_as_utf_8(raw: bytes) -> None:
    assert decode_text(raw).encode() == raw


@pytest.mark.parametrize("raw", BAD_TEXT.values(), ids=BAD_TEXT.keys())
def test_text_that_mqtt_forbids_is_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedPacket):
        decode_text(raw)


def test_value_too_long_for_its_length_field_raises_a_callers_error() -> None:
    assert len(binary(b"x" * 65_535)) == 65_537
    with pytest.raises(ValueError, match="65536"):
        text("x" * 65_536)


def test_cursor_reads_consecutive_fields() -> None:
    source = Fields(bytes.fromhex("01 0203 04050607 8001 0002 6869 0001 ff 99"))
    assert (source.u8(), source.u16(), source.u32(), source.varint()) == (1, 0x0203, 0x04050607, 128)
    assert (source.text(), source.binary(), source.rest()) == ("hi", b"\xff", b"\x99")
    assert not source
    source.finish()


READS = {
    "u8": Fields.u8,
    "u16": Fields.u16,
    "u32": Fields.u32,
    "varint": Fields.varint,
    "text": Fields.text,
    "binary": Fields.binary,
    "packet id": Fields.packet_id,
}


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
@pytest.mark.parametrize("data", [b"", b"\x80", b"\x00\x05abcd"[:1], b"\xff\xff" + b"x" * 10])
def test_cursor_never_reads_behind_its_end(read: object, data: bytes) -> None:
    source = Fields(data + b"behind the end" * 10_000, 0, len(data))
    try:
        read(source)  # type: ignore[operator]
    except MalformedPacket:
        return
    assert source.at <= len(data)


def test_cursor_of_a_part_ends_with_the_part() -> None:
    whole = Fields(b"abcdef")
    part = whole.sub(2)
    assert part.rest() == b"ab"
    assert whole.rest() == b"cdef"
    with pytest.raises(MalformedPacket):
        Fields(b"abc").sub(4)


def test_packet_id_zero_is_a_protocol_error() -> None:
    with pytest.raises(MalformedPacket) as caught:
        Fields(b"\0\0").packet_id()
    assert caught.value.reason is Reason.PROTOCOL_ERROR


def test_bytes_left_over_are_malformed() -> None:
    with pytest.raises(MalformedPacket, match="2 bytes"):
        Fields(b"ab").finish()
