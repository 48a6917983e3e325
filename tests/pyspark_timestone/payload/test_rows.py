"""Rows that a library decoded: columns at once, and one by one only when something does not fit."""

import pyarrow as pa

from pyspark_timestone.payload.rows import Row, RowPayload
from tests.support.payloads import rows

TYPE = pa.struct([pa.field("length", pa.int32()), pa.field("text", pa.string())])


def decode(payload: bytes) -> Row:
    if payload == b"odd":
        raise KeyError
    return {"length": 1 << 40 if payload == b"huge" else len(payload), "text": payload}


def test_rows_that_fit_and_those_that_do_not() -> None:
    form = RowPayload(TYPE, decode, (LookupError,))
    assert rows(form, [b"a", b"odd", b"huge", b"\xff", b""])[::4] == [
        {"length": 1, "text": "a"},
        {"length": 0, "text": ""},
    ]
    found = rows(form, [b"a", b"odd", b"huge", b"\xff", b""])
    assert found[1] == "KeyError"
    assert "not in range" in found[2] or "too large" in found[2]
    assert "utf8" in found[3]
    assert rows(form, [b"odd", b"odd"]) == ["KeyError", "KeyError"]
    assert rows(form, []) == []
