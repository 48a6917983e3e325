"""Protobuf payloads, with descriptors made here: protoc is not needed."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql.pandas.types import to_arrow_type

from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.payload.protobuf import payload_format, spark_type
from tests.support.payloads import options_of, rows

REPORT = "plant.Report"


def described() -> descriptor_pb2.FileDescriptorSet:
    """What protoc makes of a message with a field of each kind."""
    file = descriptor_pb2.FileDescriptorProto(
        name="plant.proto", package="plant", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="UNKNOWN", number=0)
    kind.value.add(name="HOT", number=1)
    point = file.message_type.add(name="Point")
    point.field.add(name="x", number=1, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL)
    report = file.message_type.add(name="Report")
    entry = report.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=Field.TYPE_DOUBLE, label=Field.LABEL_OPTIONAL)
    one, many = Field.LABEL_OPTIONAL, Field.LABEL_REPEATED
    fields: list[tuple[str, Any, Any, str]] = [
        ("device", Field.TYPE_STRING, one, ""),
        ("seq", Field.TYPE_UINT64, one, ""),
        ("raw", Field.TYPE_BYTES, one, ""),
        ("kind", Field.TYPE_ENUM, one, ".plant.Kind"),
        ("ts", Field.TYPE_MESSAGE, one, ".google.protobuf.Timestamp"),
        ("where", Field.TYPE_MESSAGE, one, ".plant.Point"),
        ("points", Field.TYPE_MESSAGE, many, ".plant.Point"),
        ("numbers", Field.TYPE_SINT32, many, ""),
        ("tags", Field.TYPE_MESSAGE, many, ".plant.Report.TagsEntry"),
    ]
    for number, (name, type_, label, type_name) in enumerate(fields, 1):
        report.field.add(name=name, number=number, type=type_, label=label, type_name=type_name or None)
    loop = file.message_type.add(name="Loop")
    loop.field.add(name="self", number=1, type=Field.TYPE_MESSAGE, label=one, type_name=".plant.Loop")
    timestamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(timestamp)
    return descriptor_pb2.FileDescriptorSet(file=[timestamp, file])


@pytest.fixture
def descriptors(tmp_path: Path) -> Path:
    path = tmp_path / "plant.desc"
    path.write_bytes(described().SerializeToString())
    return path


def message(**fields: Any) -> bytes:
    pool = DescriptorPool()
    for file in described().file:
        pool.Add(file)
    made: bytes = GetMessageClass(pool.FindMessageTypeByName(REPORT))(**fields).SerializeToString()
    return made


def found(descriptors: Path, payloads: list[bytes]) -> list[Any]:
    options = options_of(payload="protobuf", payloadSchema=str(descriptors), payloadMessage=REPORT)
    return rows(payload_format(options, to_arrow_type(spark_type(options), timezone="UTC")), payloads)


def test_every_kind_of_field_comes_through(descriptors: Path) -> None:
    moment = datetime(2026, 1, 31, 12, 0, 0, 250_000, UTC)
    full = message(
        device="d1", seq=7, raw=b"\xff", kind=1, ts=moment, where={"x": 1}, points=[{"x": 2}], numbers=[-1, 3],
        tags={"a": 1.5},
    )  # fmt: skip
    assert found(descriptors, [full]) == [
        {
            "device": "d1", "seq": 7, "raw": b"\xff", "kind": "HOT", "ts": moment, "where": {"x": 1},
            "points": [{"x": 2}], "numbers": [-1, 3], "tags": [("a", 1.5)],
        }
    ]  # fmt: skip


def test_unset_fields_are_null_where_the_message_can_tell_and_else_the_default(descriptors: Path) -> None:
    assert found(descriptors, [b""]) == [
        {
            "device": "", "seq": 0, "raw": b"", "kind": "UNKNOWN", "ts": None, "where": None, "points": [],
            "numbers": [], "tags": [],
        }
    ]  # fmt: skip


def test_bytes_that_are_no_message_and_numbers_that_spark_does_not_have_are_bad(descriptors: Path) -> None:
    good = message(seq=1)
    result = found(descriptors, [good, b"\xff\xff", message(seq=1 << 63), good])
    assert [isinstance(one, str) for one in result] == [False, True, True, False]


@pytest.mark.parametrize(
    ("name", "said"),
    [("plant.Nothing", "got 'plant.Nothing'"), ("plant.Loop", "does not contain itself, got plant.Loop")],
)
def test_messages_that_cannot_be_used_are_refused(descriptors: Path, name: str, said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        spark_type(options_of(payload="protobuf", payloadSchema=str(descriptors), payloadMessage=name))


def test_a_file_that_is_missing_or_something_else_is_named(tmp_path: Path) -> None:
    stranger = tmp_path / "x.desc"
    with pytest.raises(
        InvalidOption, match=r"^invalid payloadSchema: expected a readable file, got .*x\.desc: No such file"
    ):
        spark_type(options_of(payload="protobuf", payloadSchema=str(stranger), payloadMessage="a.B"))
    stranger.write_bytes(b"\xff\xff\xff")
    with pytest.raises(
        InvalidOption, match=r"^invalid payloadSchema: expected a descriptor set of protoc, got "
    ):
        spark_type(options_of(payload="protobuf", payloadSchema=str(stranger), payloadMessage="a.B"))
