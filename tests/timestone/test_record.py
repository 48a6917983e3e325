from array import array
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timestone.errors import RecordTooLarge
from timestone.record import (
    FLAG_QOS_SHIFT,
    FLAG_RETAIN,
    FLAG_TOMBSTONE,
    HEADER_BLOCK_BYTES_MAX,
    Header,
    HeaderKind,
    Record,
    as_bytes,
    decode_headers,
    encode_headers,
    parse_time,
    time_us,
    user_headers,
)

HEADERS = st.builds(
    Header,
    st.integers(0, 255),
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.binary(max_size=50),
)


@given(st.lists(HEADERS, max_size=20))
def test_headers_are_decoded_to_their_input(items: list[Header]) -> None:
    assert decode_headers(encode_headers(items)) == tuple(items)


def test_no_headers_are_no_bytes() -> None:
    assert encode_headers([]) == b""
    assert decode_headers(b"") == ()


def test_block_has_the_bytes_that_the_format_page_shows() -> None:
    block = encode_headers([Header(HeaderKind.USER, "é", b"\x01\x02"), Header(HeaderKind.KEY, "", b"k")])
    assert (
        block == b"\0" + b"\2\0" + b"\2\0\0\0" + b"\xc3\xa9" + b"\1\2" + b"\1" + b"\0\0" + b"\1\0\0\0" + b"k"
    )


def test_numbers_of_the_kinds_never_change() -> None:
    assert {kind.name: kind.value for kind in HeaderKind} == {
        "USER": 0,
        "KEY": 1,
        "CONTENT_TYPE": 2,
        "RESPONSE_TOPIC": 3,
        "CORRELATION_DATA": 4,
        "PAYLOAD_FORMAT": 5,
        "MESSAGE_EXPIRY": 6,
        "PUBLISHER": 7,
        "PACKET_ID": 8,
        "POSTING": 9,
        "WILL": 10,
    }


def test_flag_bits_never_change() -> None:
    assert (FLAG_RETAIN, FLAG_QOS_SHIFT, FLAG_TOMBSTONE) == (1, 1, 8)


@pytest.mark.parametrize("spare", [0, 1])
def test_block_may_be_as_long_as_its_length_field_can_say(spare: int) -> None:
    items = [Header(HeaderKind.USER, "", bytes(HEADER_BLOCK_BYTES_MAX - 7 + spare))]
    if spare == 0:
        assert len(encode_headers(items)) == HEADER_BLOCK_BYTES_MAX
    else:
        with pytest.raises(RecordTooLarge) as caught:
            encode_headers(items)
        assert (caught.value.size, caught.value.limit) == (HEADER_BLOCK_BYTES_MAX + 1, HEADER_BLOCK_BYTES_MAX)


def test_name_too_long_for_its_length_field_is_refused() -> None:
    with pytest.raises(RecordTooLarge, match="header name"):
        encode_headers([Header(0, "x" * 65_536, b"")])


@given(st.binary(max_size=200))
def test_random_bytes_decode_to_items_or_raise_a_value_error(block: bytes) -> None:
    try:
        items = decode_headers(block)
    except ValueError:
        return
    assert encode_headers(items) == block


@given(st.lists(HEADERS, min_size=1, max_size=3), st.data())
def test_block_that_ends_inside_an_item_is_refused(items: list[Header], data: st.DataObject) -> None:
    block = encode_headers(items)
    last = len(block) - len(encode_headers(items[-1:]))
    cut = data.draw(st.integers(last + 1, len(block) - 1))
    with pytest.raises(ValueError, match="at byte"):
        decode_headers(block[:cut])


def test_length_near_its_limit_allocates_nothing() -> None:
    with pytest.raises(ValueError, match="past the end"):
        decode_headers(b"\0" + b"\xff\xff" + b"\xff\xff\xff\xff" + b"abc")


def test_decoded_values_are_copies() -> None:
    """A memoryview of a receive or read buffer must not be kept alive by one header."""
    buffer = bytearray(encode_headers([Header(0, "a", b"value")]))
    (item,) = decode_headers(memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    assert item == Header(0, "a", b"value")


def test_pairs_become_user_headers() -> None:
    assert user_headers([("a", b"1"), ("a", b"2")]) == [
        Header(HeaderKind.USER, "a", b"1"),
        Header(HeaderKind.USER, "a", b"2"),
    ]


@pytest.mark.parametrize("pair", [(b"a", b"1"), ("a",), "ab", 5, ("a", b"1", b"2")])
def test_header_is_refused_when_it_is_not_a_pair(pair: Any) -> None:
    with pytest.raises(
        TypeError, match=r"invalid header: expected a pair of a name \(str\) and a value \(bytes\), got"
    ):
        user_headers([pair])


@pytest.mark.parametrize("value", ["text", 5, None])
def test_header_is_refused_when_its_value_is_not_bytes(value: Any) -> None:
    with pytest.raises(
        TypeError, match="invalid value of header 'a': expected bytes, bytearray or memoryview, got"
    ):
        user_headers([("a", value)])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"abcd", b"abcd"),
        (bytearray(b"abcd"), b"abcd"),
        (memoryview(b"abcd")[1:3], b"bc"),
        (memoryview(b"abcd")[::2], b"ac"),
        (array("H", [1]), b"\x01\0"),
    ],
)
def test_bytes_like_value_is_copied_to_bytes(value: Any, expected: bytes) -> None:
    taken = as_bytes(value, "payload")
    assert (type(taken), taken) == (bytes, expected)
    if isinstance(value, bytearray):
        value[:] = b"zzzz"
        assert taken == expected
    assert user_headers([("a", value)])[0].value in (expected, b"zzzz")


def test_time_is_microseconds_since_1970() -> None:
    assert time_us(datetime(1970, 1, 1, 0, 0, 1, 7, tzinfo=UTC)) == 1_000_007
    assert time_us(datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))) == 0
    with pytest.raises(ValueError, match=r"expected a datetime with a time zone, got datetime\.datetime"):
        time_us(datetime(1970, 1, 1))


def test_text_of_a_time_needs_its_zone() -> None:
    assert time_us(parse_time("2026-07-01T08:00:00.000001Z")) == 1_782_892_800_000_001
    assert parse_time("1970-01-01T02:00:00+02:00") == datetime(1970, 1, 1, tzinfo=UTC)
    for text, error in (
        ("yesterday", "expected an RFC 3339 time such as"),
        ("2026-07-01", "expected a time zone in '2026-07-01': 2026-07-01T00:00:00Z for UTC"),
    ):
        with pytest.raises(ValueError, match=error):
            parse_time(text)


def test_record_repr_has_time_topic_size_and_the_first_bytes() -> None:
    record = Record(7, 1_000_007, "a/b", b"x" * 1000, (Header(HeaderKind.USER, "unit", b"C"),), 1)
    assert record.timestamp == datetime(1970, 1, 1, 0, 0, 1, 7, tzinfo=UTC)
    assert repr(record) == (
        f"<Record 7: 1970-01-01T00:00:01.000007Z, topic 'a/b', 1,000 bytes b'{'x' * 40}'…, "
        "headers (('unit', b'C'),), flags 0x1>"
    )
    assert repr(Record(0, 2**63 - 1, None, b"")) == "<Record 0: 9223372036854775807 us, 0 bytes b''>"


def test_record_gives_user_headers_key_and_qos() -> None:
    block = (
        Header(HeaderKind.KEY, "", b"k"),
        Header(HeaderKind.USER, "a", b"1"),
        Header(HeaderKind.CONTENT_TYPE, "", b"json"),
        Header(HeaderKind.USER, "a", b"2"),
    )
    record = Record(0, 1, "t", b"", block, flags=2 << FLAG_QOS_SHIFT | FLAG_RETAIN)
    assert record.headers == (("a", b"1"), ("a", b"2"))
    assert record.key == b"k"
    assert record.qos == 2


def test_plain_record_has_no_headers_and_no_key() -> None:
    record = Record(0, 1, None, b"x")
    assert (record.headers, record.key, record.qos) == ((), None, 0)
