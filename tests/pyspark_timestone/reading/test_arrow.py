"""Arrow batches: exactly the schema Spark asks for, the right bytes, and no copy where none is needed."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import timestone
from pyspark_timestone.options.columns import NAMES, arrow_schema, source_schema
from pyspark_timestone.reading.arrow import record_batch
from timestone.reading.batch import Batch


@pytest.fixture
def plain(tmp_path: Path) -> Batch:
    with timestone.open(tmp_path) as store:
        log = store.log("telemetry")
        log.append_many([b"", b"a", b"bc" * 500], topics=["x/1", "x/2", "x/1"])
        return log.read(0)


@pytest.fixture
def headed(tmp_path: Path) -> Batch:
    with timestone.open(tmp_path) as store:
        log = store.log("telemetry")
        log.append(b"first", headers=[("k", b"v")])
        log.append(b"second", topic="x")
        log.append(b"third", topic="x", headers=[("k", b"1"), ("k", b"2")])
    # From the files: in memory each append is a run of its own.
    with timestone.view(tmp_path) as view:
        return view.log("telemetry").read(0)


@pytest.mark.parametrize("columns", [NAMES, ("value", "offset"), ("headers",)])
@pytest.mark.parametrize("kind", ["plain", "headed"])
def test_every_batch_has_the_schema_to_the_letter(
    kind: str, columns: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    wanted = arrow_schema(source_schema(columns))
    made = record_batch(request.getfixturevalue(kind), wanted)
    assert made.schema.equals(wanted, check_metadata=True)
    made.validate(full=True)


def test_a_nullable_schema_of_the_user_is_kept_nullable(plain: Batch) -> None:
    wanted = arrow_schema(StructType([StructField("offset", LongType(), nullable=True)]))
    assert record_batch(plain, wanted).schema.field("offset").nullable


def test_plain_records_are_columns(plain: Batch) -> None:
    made = record_batch(plain, arrow_schema(source_schema())).to_pydict()
    assert made["value"] == [b"", b"a", b"bc" * 500]
    assert made["topic"] == ["x/1", "x/2", "x/1"]
    assert made["offset"] == [0, 1, 2]
    assert made["log"] == ["telemetry"] * 3
    assert (made["partition"], made["flags"], made["headers"]) == ([0] * 3, [0] * 3, [None] * 3)


def test_headers_are_beside_the_value_not_in_it(headed: Batch) -> None:
    made = record_batch(headed, arrow_schema(source_schema(["headers", "value", "topic"]))).to_pydict()
    assert made["value"] == [b"first", b"second", b"third"]
    assert made["headers"] == [
        [{"key": "k", "value": b"v"}],
        None,
        [{"key": "k", "value": b"1"}, {"key": "k", "value": b"2"}],
    ]
    assert made["topic"] == [None, "x", "x"]


def test_values_of_plain_records_are_not_copied(plain: Batch) -> None:
    before = pa.total_allocated_bytes()
    made = record_batch(plain, arrow_schema(source_schema(["value"])))
    assert made.column("value").buffers()[2].address == pa.py_buffer(plain.data).address
    assert pa.total_allocated_bytes() - before < len(plain.data)
