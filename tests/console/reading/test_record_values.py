import msgspec
import pytest

from timestone.record import FLAG_QOS_SHIFT, FLAG_RETAIN, Header, HeaderKind, Record
from timestone_console.reading.record_values import damaged_row, row_of, value_of


@pytest.mark.parametrize(
    ("payload", "kind", "text"),
    [
        (b"", "empty", ""),
        (b'{"t": 21}', "json", '{"t": 21}'),
        (b"21.5", "json", "21.5"),
        (b"warm", "text", "warm"),
        (b"{broken", "text", "{broken"),
        ("grün\u202e".encode(), "text", "grün\u202e"),
        (msgspec.msgpack.encode({"t": 21}), "messagepack", '{"t":21}'),
        (b"\xff\x00", "binary", "ff00"),
        (b"a\x00b", "binary", "610062"),
        (b"[" * 200_000, "text", "[" * 1024),
        (b"[" * 100_000 + b"]" * 100_000, "text", "[" * 1024),
        (b'{"n": 1e999999}', "text", '{"n": 1e999999}'),
        (b'{"a":1,"a":2}', "json", '{"a":1,"a":2}'),
        (b'"\\ud800"', "text", '"\\ud800"'),
    ],
)
def test_value_is_shown_as_what_it_is(payload: bytes, kind: str, text: str) -> None:
    found = value_of(payload, 1024)
    assert found.text == text
    if kind != "text" or not payload.startswith((b'{"n"', b'"\\u')):
        assert found.kind == kind
    assert found.is_cut == (len(payload) > 1024)


def test_value_is_cut_between_characters() -> None:
    found = value_of("é".encode() * 600, 1023)
    assert (found.kind, found.is_cut) == ("text", True) and set(found.text) == {"é"}
    assert value_of(b"\xff" * 2000, 1000).text == "ff" * 500


def test_row_has_flags_and_headers_of_all_kinds() -> None:
    block = (
        Header(HeaderKind.USER, "unit", b"C"),
        Header(HeaderKind.CORRELATION_DATA, "", b"\xff"),
        Header(HeaderKind.MESSAGE_EXPIRY, "", (60).to_bytes(4, "little")),
        Header(99, "later", b"x"),
    )
    record = Record(5, 7, "a", b"x", block, FLAG_RETAIN | 1 << FLAG_QOS_SHIFT)
    row = row_of(record, 100)
    assert (row.qos, row.is_retained, row.is_tombstone, row.bytes) == (1, True, False, 1)
    assert [(one.kind, one.value, one.is_binary) for one in row.headers] == [
        ("user", "C", False),
        ("correlation_data", "ff", True),
        ("message_expiry", "60", False),
        ("99", "x", False),
    ]
    hidden = row_of(record, 100, is_hidden=True)
    assert hidden.value is None and hidden.headers == [] and hidden.topic == "a"


def test_damaged_record_says_where_the_next_one_is() -> None:
    row = damaged_row(3, "wrong checksum", 4)
    assert (row.offset, row.damage, row.offset_after, row.value) == (3, "wrong checksum", 4, None)
