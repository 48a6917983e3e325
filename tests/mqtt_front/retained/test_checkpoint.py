"""Encoding of retained messages; documents of other versions are refused."""

import pytest

from mqtt_front.retained.checkpoint import (
    Place,
    UndecodableRetained,
    decode_checkpoint,
    decode_retained,
    encode_checkpoint,
    encode_retained,
)
from mqtt_front.retained.messages import RetainedMessage
from tests.support.damaged_json import DAMAGED_JSON

GOLDEN = bytes.fromhex(
    "54524554 01 04 0c00 0700000000000000 40e2010000000000 0300 000000000000 6d717474"
    "00 0400 01000000 756e6974 43 323135"
)
BLOCK = bytes.fromhex("00 0400 01000000 756e6974 43")
MESSAGE = RetainedMessage(7, 123_456, "a/b", 3, BLOCK, b"215")


def test_document_of_version_1_is_read_and_written_byte_for_byte() -> None:
    assert encode_retained("mqtt", MESSAGE) == GOLDEN
    assert decode_retained("a/b", GOLDEN) == ("mqtt", MESSAGE)


@pytest.mark.parametrize(
    "document", [b"", GOLDEN[:31], b"X" + GOLDEN[1:], GOLDEN[:4] + b"\x02" + GOLDEN[5:], GOLDEN[:40],
                 GOLDEN[:32] + b"\xff" * 16],
)  # fmt: skip
def test_document_is_refused_when_it_is_not_valid(document: bytes) -> None:
    with pytest.raises(UndecodableRetained):
        decode_retained("a/b", document)


def test_checkpoint_has_the_offset_of_each_log() -> None:
    places = {"mqtt": Place(2**63 + 1, 5), "b": Place(1, 0)}
    assert decode_checkpoint(encode_checkpoint(places)) == places


def test_missing_checkpoint_gives_no_offsets() -> None:
    assert decode_checkpoint(None) == {}


_WRONG_PLACES = [b'{"a": 1}', b'{"a": ["x", 1]}', b'{"a": [1, -1]}', b'{"a": [1, 1.5]}']


@pytest.mark.parametrize("document", [*_WRONG_PLACES, *DAMAGED_JSON.values()])
def test_invalid_checkpoint_is_refused(document: bytes) -> None:
    with pytest.raises(UndecodableRetained, match="invalid checkpoint"):
        decode_checkpoint(document)
