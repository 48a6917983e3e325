import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timestone
from timestone.record import Header, HeaderKind, encode_headers
from timestone.writing.write_batch import WriteBatch
from timestone_cli.output.record_formats import FORMATS, formatter, quote

PAYLOADS = [b'{"a": 1}', "grün".encode(), b"", b"\xff\x00", b"two\nlines", b"\x1b[2Jgone\x9b"]


@pytest.fixture
def batch(tmp_path: Path) -> timestone.Batch:
    block = encode_headers(
        [
            Header(HeaderKind.USER, "unit", "°C".encode()),
            Header(HeaderKind.USER, "unit", b"\xff"),
            Header(HeaderKind.CONTENT_TYPE, "", b"text/plain"),
            Header(HeaderKind.PAYLOAD_FORMAT, "", b"\x01"),
            Header(HeaderKind.MESSAGE_EXPIRY, "", (3600).to_bytes(4, "little")),
            Header(HeaderKind.MESSAGE_EXPIRY, "", b"of two bytes more"),
            Header(77, "new", b""),
        ]
    )
    with timestone.open(tmp_path) as store:
        log = store.log("t")
        log.append_many(PAYLOADS, topic="a/ü")
        log.append_batch(WriteBatch([block + b"value"], flags=3, header_lengths=len(block)))
    with timestone.view(tmp_path) as view:
        return view.log("t").read(0)


def test_json_says_everything_about_a_record(batch: timestone.Batch) -> None:
    lines = formatter("json", terminal=False)(batch, len(batch)).decode().splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["offset"] for record in records] == list(range(7))
    assert records[0] == {
        "log": "t",
        "partition": 0,
        "offset": 0,
        "timestamp_us": int(batch.timestamps_us[0]),
        "topic": "a/ü",
        "flags": 0,
        "headers": [],
        "value": '{"a": 1}',
    }
    values = [record.get("value", record.get("value_base64")) for record in records]
    assert values == [
        '{"a": 1}', "grün", "", base64.b64encode(b"\xff\x00").decode(), "two\nlines",
        base64.b64encode(PAYLOADS[5]).decode(), "value",
    ]  # fmt: skip
    assert records[6]["topic"] is None
    assert records[6]["flags"] == 3
    assert records[6]["headers"] == [
        {"kind": "user", "name": "unit", "value": "°C"},
        {"kind": "user", "name": "unit", "value_base64": "/w=="},
        {"kind": "content_type", "value": "text/plain"},
        {"kind": "payload_format", "value": 1},
        {"kind": "message_expiry", "value": 3600},
        {"kind": "message_expiry", "value": "of two bytes more"},
        {"kind": "77", "name": "new", "value": ""},
    ]


def test_raw_text_and_hex_show_the_values_only(batch: timestone.Batch) -> None:
    values = [*PAYLOADS, b"value"]
    assert formatter("raw", terminal=False)(batch, 7) == b"".join(values)
    assert formatter("text", terminal=False)(batch, 7) == b"".join(value + b"\n" for value in values)
    assert formatter("hex", terminal=True)(batch, 7).decode() == "".join(
        value.hex() + "\n" for value in values
    )


def test_a_record_cannot_steer_the_terminal(batch: timestone.Batch) -> None:
    shown = formatter("text", terminal=True)(batch, 7).decode()
    assert "\x1b" not in shown
    assert "\\x1b[2Jgone\\x9b" in shown
    assert "grün\n" in shown


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("count", [0, 1, 3])
def test_only_the_first_count_records_are_formatted(batch: timestone.Batch, name: str, count: int) -> None:
    mask = batch.offsets < count
    assert formatter(name, terminal=False)(batch, count) == formatter(name, terminal=False)(
        batch.select(mask), count
    )


@pytest.mark.slow
@given(st.text())
def test_quoted_text_is_json_on_one_line(text: str) -> None:
    quoted = quote(text)
    assert json.loads(quoted) == text
    assert len(quoted.splitlines()) == 1
    assert not any(0x7F <= ord(character) <= 0x9F for character in quoted)
