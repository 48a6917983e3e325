"""A schema in Spark's DDL, checked before Spark reads it."""

import pytest

from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.payload.ddl import check_ddl
from pyspark_timestone.payload.json import spark_type
from tests.support.payloads import options_of


@pytest.mark.parametrize(
    "text",
    [
        "a int",
        "a INT, b: Bigint NOT NULL, `c d``e` string COMMENT 'it\\'s, a > b', _1 double",
        "price decimal(10, 2), other DEC, tags array<string>, m map<string,array<struct<x:int,y:double>>>",
        "at timestamp, there timestamp_ntz, day date, empty struct<>, s string collate UTF8_LCASE",
        "time int, date date, `struct` struct<`array`: array < int > >",
        "span interval day to second, v variant, c char(3)",
        "größe double,\n\tb\nint",
    ],
)
def test_schema_that_spark_reads_passes(text: str) -> None:
    check_ddl(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a foo", "field a has type foo, which is not a type of Spark"),
        ("a int,", "expected the name of a field, found the end"),
        ("a", "field a has type nothing"),
        ("a int b int", "expected a comma after field a, found b"),
        ("a array<int", "expected > after the type in array, found the end"),
        ("a map<string>", "expected a comma after the type of the keys, found >"),
        ("a struct<b>", "field b has type >"),
        ("a decimal(3", "expected \\) after the type of field a"),
        ("a int not", "expected NULL after NOT"),
        ("a int; b int", "unexpected ; b int"),
        ("[1, 2]", "unexpected \\[1, 2\\]"),
        ("<a int>", "expected the name of a field, found <"),
    ],
)
def test_error_names_the_option_and_the_place(text: str, said: str) -> None:
    with pytest.raises(
        InvalidOption, match=f"^invalid payloadSchema: expected a DDL string or JSON .*{said}"
    ):
        spark_type(options_of(payload="json", payloadSchema=text))


@pytest.mark.parametrize("text", ['{"type": "struct"', '{"type": "struct", "fields": [{"name": "a"}]}', "{}"])
def test_error_in_json_names_the_option(text: str) -> None:
    with pytest.raises(
        InvalidOption, match=r"^invalid payloadSchema: expected a DDL string or JSON schema, got"
    ):
        spark_type(options_of(payload="msgpack", payloadSchema=text))
