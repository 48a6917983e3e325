import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timestone_cli.control.protocol import (
    InvalidLine,
    decode_line,
    encode_error,
    encode_request,
    encode_result,
)


def test_request_is_one_line_of_json_with_a_version() -> None:
    line = encode_request("clients", {"front": "mqtt", "after": 3})
    assert line == b'{"version":1,"request":"clients","front":"mqtt","after":3}\n'
    assert decode_line(line)["after"] == 3


def test_names_with_line_ends_and_lone_surrogates_stay_on_one_line() -> None:
    name = "a\nb\u2028\ud800\x1b[2J"
    line = encode_result({"client": name})
    assert line.count(b"\n") == 1 and line.isascii()
    assert decode_line(line)["result"] == {"client": name}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"", "invalid_line"),
        (b"\xff\xfe", "invalid_line"),
        (b"[1]", "invalid_line"),
        (b"[" * 60_000, "invalid_line"),
        (b'{"version":1,"after":NaN}', "invalid_line"),
        (b'{"version":1,"after":' + b"9" * 10_000 + b"}", "invalid_line"),
        (b"{}", "unsupported_version"),
        (b'{"version":2}', "unsupported_version"),
        (b'{"version":true}', "unsupported_version"),
        (b'{"version":"' + b"x" * 1000 + b'"}', "unsupported_version"),
    ],
)
def test_line_that_is_not_of_this_version_is_refused_with_a_short_text(line: bytes, code: str) -> None:
    with pytest.raises(InvalidLine) as raised:
        decode_line(line)
    assert raised.value.code == code and len(str(raised.value)) < 120


@given(st.binary(max_size=200))
def test_any_bytes_are_an_object_or_refused(line: bytes) -> None:
    try:
        version = decode_line(line)["version"]
    except InvalidLine as error:
        version = json.loads(encode_error(error.code, str(error)))["version"]
    assert version == 1
