"""Lines of `read --format json` are parsed into what they show; tests of `append` have the round trip."""

import pytest

from timestone.record import Header, HeaderKind, decode_headers
from timestone_cli.input.record_lines import RecordLine, hex_line, json_line


def test_json_line_has_value_topic_flags_and_headers() -> None:
    record = json_line(
        b'{"log":"a","partition":1,"offset":7,"timestamp_us":1,"topic":"t","flags":9,'
        b'"headers":[{"kind":"key","value_base64":"/w=="},{"kind":"17","value":"new"}],"value":"x"}'
    )
    assert (record.payload, record.topic, record.flags) == (b"x", "t", 9)
    assert decode_headers(record.headers) == (Header(HeaderKind.KEY, "", b"\xff"), Header(17, "", b"new"))


def test_members_may_be_missing() -> None:
    assert json_line(b'{"value":""}') == RecordLine(b"")


def test_hex_line_is_the_payload() -> None:
    assert hex_line(b"00fF") == RecordLine(b"\x00\xff")


@pytest.mark.parametrize(
    "line",
    [
        b'{"value": 7}',
        b'{"value": "\\ud800"}',
        b'{"value": "x", "topic": 1}',
        b'{"value": "x", "topic": ""}',
        b'{"value": "x", "headers": {}}',
        b'{"value": "x", "headers": [1]}',
        b'{"value": "x", "headers": [{"kind": "message_expiry", "value": 4294967296}]}',
        b'{"value": "x", "headers": [{"kind": "key", "value": 1}]}',
        b'{"value": "x", "headers": [{"kind": "256", "value": ""}]}',
        b"\xff",
    ],
)
def test_what_read_would_not_print_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        json_line(line)
