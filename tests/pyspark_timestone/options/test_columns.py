"""The schema of the source, and schemas that users bring."""

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pyspark_timestone.errors import SchemaMismatch
from pyspark_timestone.options.columns import NAMES, check_schema, source_schema


def test_schema_is_the_documented_one() -> None:
    assert source_schema().simpleString() == (
        "struct<log:string,partition:int,offset:bigint,timestamp:timestamp,topic:string,"
        "headers:array<struct<key:string,value:binary>>,value:binary,flags:int>"
    )


def test_schema_has_the_columns_asked_for_in_their_order() -> None:
    assert source_schema(["value", "offset"]).names == ["value", "offset"]


def test_what_is_always_there_is_never_null() -> None:
    assert [name for name, field in zip(NAMES, source_schema(), strict=True) if field.nullable] == [
        "topic",
        "headers",
        "value",
    ]


def test_a_users_schema_may_choose_columns_and_be_nullable() -> None:
    check_schema(StructType([StructField("offset", LongType()), StructField("topic", StringType())]))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (
            StructType([StructField("payload", StringType())]),
            "expected some of log, partition, .* got 'payload'",
        ),
        (StructType([StructField("value", StringType())]), "expected binary for 'value', got string"),
        (
            StructType([StructField("offset", LongType())] * 2),
            "expected each column once, got 'offset' twice",
        ),
    ],
)
def test_a_users_schema_that_cannot_be_served_is_refused(schema: StructType, said: str) -> None:
    with pytest.raises(SchemaMismatch, match=said):
        check_schema(schema)
