"""MessagePack payloads."""

from datetime import UTC, datetime
from typing import Any

import msgpack
import pyarrow as pa
import pytest

from pyspark_timestone.payload.msgpack import payload_format
from pyspark_timestone.payload.rows import RowPayload
from tests.support.payloads import TELEMETRY, options_of, rows

NESTED = pa.struct(
    [
        pa.field("list", pa.list_(pa.int64())),
        pa.field("words", pa.list_(pa.string())),
        pa.field("map", pa.map_(pa.string(), pa.int32())),
        pa.field("inner", pa.struct([pa.field("b", pa.binary())])),
    ]
)


def decoder(type: pa.StructType) -> RowPayload:
    return payload_format(options_of(payload="msgpack", payloadSchema="any"), type)


def test_maps_become_rows() -> None:
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    full = {"device": "d1", "seq": 7, "ts": moment, "temperature": 2, "more": [1]}
    assert rows(decoder(TELEMETRY), [msgpack.packb(full, datetime=True), msgpack.packb({1: 2})]) == [
        {"device": "d1", "seq": 7, "ts": moment, "temperature": 2.0},
        {"device": None, "seq": None, "ts": None, "temperature": None},
    ]
    nested = {"list": [1, None], "words": ["a"], "map": {"a": 1, "b": None}, "inner": {"b": b"\xff"}}
    assert rows(decoder(NESTED), [msgpack.packb(nested)]) == [nested | {"map": [("a", 1), ("b", None)]}]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"seq": 1.5}, "payload.seq is 1.5, not int64"),
        ({"seq": True}, "payload.seq is True, not int64"),
        ({"device": b"d1"}, "payload.device is b'd1', not string"),
        ({"ts": 5}, "payload.ts is 5, not timestamp"),
        ({"temperature": "hot"}, "payload.temperature is 'hot', not double"),
        ([1, 2], "expected a map, got [1, 2]"),
    ],
    ids=str,
)
def test_a_value_of_another_type_is_bad_and_never_bent(value: Any, reason: str) -> None:
    (found,) = rows(decoder(TELEMETRY), [msgpack.packb(value)])
    assert reason in found


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        msgpack.packb({"seq": 1})[:-1],
        msgpack.packb({}) + b"x",
        b"\x91" * 1020 + b"\xc0",
        b"\x81\xa3seq" + b"\x91" * 1020 + b"\xc0",
        b"\x91" * 100_000,
        b"\xdf\xff\xff\xff\xff",
        b"\x81\xa2ts\xc7\x0c\xff\x00\x00\x00\x00\x40" + bytes(7),
    ],
    ids=["empty", "reserved", "cut", "more", "deep", "deep inside", "too deep", "huge", "far future"],
)
def test_bytes_that_are_no_message_are_bad(payload: bytes) -> None:
    good = msgpack.packb({"seq": 1})
    found = rows(decoder(TELEMETRY), [good, payload, good])
    assert [isinstance(one, str) for one in found] == [False, True, False]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"list": [1, 2.5]}, "payload.list is 2.5, not int64"),
        ({"list": b"ab"}, "payload.list is b'ab', not list"),
        ({"words": "ab"}, "payload.words is 'ab', not list"),
        ({"map": {"a": 1.5}}, "payload.map is 1.5, not int32"),
        ({"map": {1: 1}}, "payload.map is 1, not string"),
        ({"map": [["a", 1]]}, "payload.map is [['a', 1]], not map"),
        ({"inner": {"b": "text"}}, "payload.inner.b is 'text', not binary"),
        ({"inner": [1]}, "payload.inner is [1], not struct"),
    ],
    ids=str,
)
def test_values_inside_of_others_are_not_bent_either(value: Any, reason: str) -> None:
    (found,) = rows(decoder(NESTED), [msgpack.packb(value)])
    assert reason in found
