"""Encoding of wills; documents of other versions are refused."""

import pytest

from mqtt_front.codec.packets import Will
from mqtt_front.codec.properties import Properties
from mqtt_front.wills.will_document import StoredWill, UndecodableWill, decode_will, encode_will
from mqtt_front.wills.will_records import Place

STORED = StoredWill(
    "dévice", Will("a/b", b"bye\0", 2, True, Properties(will_delay_interval=5, content_type="x")), 3600, 1.5
)
GOLDEN = bytes.fromhex(
    "5457494c 01 05 0700 100e0000 000000000000f83f 0300 0000 09000000"
    "64c3a9766963 65"  # the client id
    "612f62"  # the topic
    "030001 78 1800000005"  # content type and will delay
    "62796500"  # the payload
)
"""Version 1."""
PLACED = STORED._replace(place=Place("mqtt", 0x1234))
GOLDEN_2 = bytes.fromhex(
    "5457494c 02 05 0700 100e0000 000000000000f83f 0300 0400 09000000"
    "64c3a9766963 65"
    "612f62"
    "030001 78 1800000005"
    "6d717474 3412000000000000"  # the log and the offset
    "62796500"
)
"""Version 2."""


def test_document_of_version_1_is_read_and_written_byte_for_byte() -> None:
    assert encode_will(STORED) == GOLDEN
    assert decode_will(GOLDEN) == STORED


def test_document_of_version_2_has_log_and_offset() -> None:
    assert encode_will(PLACED) == GOLDEN_2
    assert decode_will(GOLDEN_2) == PLACED


def test_empty_will_is_valid() -> None:
    bare = StoredWill("", Will("t", b""), 0, 0.0)
    assert decode_will(encode_will(bare)) == bare


@pytest.mark.parametrize(
    "document",
    [
        b"",
        GOLDEN[:27],
        b"TSES" + GOLDEN[4:],
        GOLDEN[:4] + b"\x03" + GOLDEN[5:],
        GOLDEN[:28] + b"\xff" + GOLDEN[29:],
        GOLDEN[:38] + b"\x7f" + GOLDEN[39:],
        GOLDEN[:40],
        GOLDEN_2[:-5],
    ],
    ids=[
        "nothing",
        "half a header",
        "another magic",
        "another version",
        "an id that is no text",
        "a property",
        "cut",
        "cut in its place",
    ],
)
def test_document_is_refused_when_it_is_not_valid(document: bytes) -> None:
    with pytest.raises(UndecodableWill):
        decode_will(document)
