"""JSON payloads: typed rows, each of its own payload, and a reason for each one that is bad."""

import json
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StructField, StructType

from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.payload.json import JsonPayload, spark_type
from tests.support.payloads import TELEMETRY, options_of, rows

SEQ = pa.struct([pa.field("seq", pa.int64())])


@pytest.mark.parametrize(
    ("payload", "row"),
    [
        (b'{"seq": 1, "temperature": 2.5}', {"seq": 1, "temperature": 2.5}),
        (b'{"device": "gr\xc3\xbc\\u00dfe"}', {"device": "grüße"}),
        (b'{"ts": "2026-01-31T12:00:00.5Z"}', {"ts": datetime(2026, 1, 31, 12, 0, 0, 500_000, UTC)}),
        (b'{"ts": "2026-01-31T12:00:00+02:00"}', {"ts": datetime(2026, 1, 31, 10, tzinfo=UTC)}),
        (b'{"seq": null, "more": {"deep": [1, {"x": 2}]}}', {}),
        (b' \r\n{\n"seq": 7\n}\t', {"seq": 7}),
        (b"{}", {}),
    ],
)
def test_objects_become_rows(payload: bytes, row: dict[str, Any]) -> None:
    empty = dict.fromkeys(["device", "seq", "ts", "temperature"])
    assert rows(JsonPayload(TELEMETRY), [payload]) == [empty | row]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"null", "no JSON object"),
        (b"[1]", "no JSON object"),
        (b'{"seq": 1', "no JSON object"),
        (b'{"seq": }', "Invalid value."),
        (b'{"seq": 1} x}', "Invalid value."),
        (b'{"seq": 1}{"seq": 2}', "more than one JSON object"),
        (b'{"seq": "one"}', "Column(/seq) changed from number to string"),
        (b'{"seq": 1.5}', "Failed to convert JSON to int64, couldn't parse:1.5"),
        (b'{"seq": 1, "seq": 2}', "Column(/seq) was specified twice"),
        (b'{"ts": "soon"}', "Failed to convert JSON to timestamp[us, tz=UTC], couldn't parse:soon"),
        (b'{"device": "\xff"}', "Invalid UTF8 payload"),
    ],
)
def test_what_is_no_such_object_is_bad_for_a_reason_among_good_ones(payload: bytes, reason: str) -> None:
    good = {"device": None, "seq": 1, "ts": None, "temperature": None}
    payloads = [b'{"seq": 1}', payload, b'{"seq": 1}']
    assert rows(JsonPayload(TELEMETRY), payloads) == [good, reason, good]


DAYS = pa.struct(
    [
        pa.field("day", pa.date32()),
        pa.field("shifts", pa.list_(pa.struct([pa.field("day", pa.date32()), TELEMETRY.field("ts")]))),
    ]
)


FLOATS = pa.struct(
    [
        ("d", pa.float64()),
        ("f", pa.float32()),
        ("l", pa.list_(pa.float64())),
        ("s", pa.struct([("x", pa.float64())])),
    ]
)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b'{"d": 1e400}', "Number too big to be stored in double."),
        (b'{"d": -1%s}' % (b"0" * 400), "d is too large for double"),
        (b'{"d": 1.7976931348623159e308}', "d is too large for double"),
        (b'{"d": Infinity}', "d is too large for double"),
        (b'{"d": NaN}', "d is not a number for double"),
        (b'{"f": 3.5e38}', "f is too large for float"),
        (b'{"f": -3.5e38}', "f is too large for float"),
        (b'{"l": [1, null, NaN]}', "l is not a number for double"),
        (b'{"s": {"x": -Infinity}}', "s/x is too large for double"),
    ],
)
def test_a_number_that_json_or_its_type_does_not_have_is_bad_and_no_other(
    payload: bytes, reason: str
) -> None:
    decoder = JsonPayload(FLOATS)
    good = b'{"d": -1.7976931348623157e308, "f": 3.4e38, "l": [null, 1e-400], "s": {"x": null}}'
    many = [good] * 700 + [payload] + [b"{}"] * 700
    decoded = decoder.decode(pa.array(many, pa.binary()))
    assert decoded.bad == {700: reason}
    kept = decoded.values.to_pylist()
    assert kept[700] is None and kept[0] == kept[699] and kept[0]["d"] == -1.7976931348623157e308
    assert kept[701] == dict.fromkeys("dfls")


def test_a_date_is_text_and_never_a_number_of_days() -> None:
    payloads = [
        b'{"day": "2026-01-31", "shifts": [{"day": "0001-01-01"}, {}, null]}',
        b'{"day": 20484}',
        b'{"day": "2026-02-30"}',
        b'{"day": "2026-01-31T23:00:00-02:00"}',
    ]
    none = {"day": None, "ts": None}
    assert rows(JsonPayload(DAYS), payloads) == [
        {"day": date(2026, 1, 31), "shifts": [none | {"day": date(1, 1, 1)}, none, None]},
        "Column(/day) changed from string to number",
        "Failed to convert JSON to timestamp[us], couldn't parse:2026-02-30",
        {"day": date(2026, 2, 1), "shifts": None},
    ]


def test_a_time_may_have_nine_digits_beside_others_that_only_a_microsecond_can_hold() -> None:
    """Go writes nine. Times to the nanosecond end in 2262."""
    payloads = [
        b'{"ts": "2026-01-31T12:00:00.123456789Z"}',
        b'{"ts": "9999-12-31T00:00:00Z"}',
        b'{"ts": "2026-01-31T12:00:00.1234567890Z"}',
    ]
    assert [row if isinstance(row, str) else row["ts"] for row in rows(JsonPayload(TELEMETRY), payloads)] == [
        datetime(2026, 1, 31, 12, 0, 0, 123456, UTC),
        datetime(9999, 12, 31, tzinfo=UTC),
        "Failed to convert JSON to timestamp[us, tz=UTC], couldn't parse:2026-01-31T12:00:00.1234567890Z",
    ]
    nested = b'{"shifts": [{"ts": "2026-01-31T12:00:00.123456789Z"}]}'
    (row,) = rows(JsonPayload(DAYS), [nested])
    assert row["shifts"] == [{"day": None, "ts": datetime(2026, 1, 31, 12, 0, 0, 123456, UTC)}]


def alone(payload: bytes) -> Any:
    (row,) = rows(JsonPayload(SEQ), [payload])
    return row


PIECES = [*b'{"seq":1} {"seq":2} { } [ ] , " \\ "seq":3 "a": {} //'.split(), b"\n", b" "]
pieces = st.sampled_from(PIECES)


@pytest.mark.slow
@given(payloads=st.lists(st.lists(pieces, max_size=5).map(b"".join), max_size=8))
def test_no_payload_has_a_say_in_the_row_of_another(payloads: list[bytes]) -> None:
    """Parsed as one text, or each alone: the same."""
    assert rows(JsonPayload(SEQ), payloads) == [alone(payload) for payload in payloads]


def test_many_with_few_bad_ones_are_all_in_their_places() -> None:
    payloads = [b'{"seq": %d}' % number for number in range(3000)]
    bad = {7: b'{"seq": "x"}', 8: b'{"seq": 0.5}', 1500: b"garbage", 2999: b'{"seq": 1}}'}
    for number, payload in bad.items():
        payloads[number] = payload
    found = rows(JsonPayload(SEQ), payloads)
    assert [row for number, row in enumerate(found) if number not in bad] == [
        {"seq": number} for number in range(3000) if number not in bad
    ]
    assert all(isinstance(found[number], str) for number in bad)


def test_nothing_is_nothing() -> None:
    assert rows(JsonPayload(SEQ), []) == []
    assert rows(JsonPayload(SEQ), [b"", b""]) == ["empty", "empty"]


def test_the_schema_is_ddl_for_spark_or_the_json_of_a_type() -> None:
    assert spark_type(options_of(payload="json", payloadSchema="seq bigint")) == "seq bigint"
    wanted = StructType([StructField("seq", LongType())])
    assert spark_type(options_of(payload="json", payloadSchema=wanted.json())) == wanted
    with pytest.raises(InvalidOption, match="invalid payloadSchema: expected a DDL string or JSON schema"):
        spark_type(options_of(payload="json", payloadSchema=json.dumps({"type": "record"})))
