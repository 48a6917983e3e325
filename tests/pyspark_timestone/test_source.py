"""The class that Spark finds."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader
from pyspark.sql.types import StructType

import pyspark_timestone
from pyspark_timestone import DefaultSource
from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.options.columns import NAMES, source_schema
from pyspark_timestone.reading.admission_control import LimitedStreamReader
from pyspark_timestone.reading.batch_reader import TimestoneReader
from tests.support.spark import batch, stream
from tests.support.stores import LOG, fill


def source(**options: str) -> DefaultSource:
    return DefaultSource(CaseInsensitiveDict(options))


def test_the_format_is_called_timestone() -> None:
    assert DefaultSource.name() == "timestone"
    # What Spark looks for: a class of this name in a module that begins with `pyspark_`.
    assert pyspark_timestone.DefaultSource is DefaultSource


LOOK = """
from importlib import import_module
from pkgutil import iter_modules
found = [import_module(one.name) for one in iter_modules() if one.name.startswith("pyspark_")]
print([one.DefaultSource.name() for one in found])
"""


@pytest.mark.slow
def test_spark_finds_it_from_any_folder(tmp_path: Path) -> None:
    """Spark looks among the modules in folders, which those of an editable install are not: there `make` adds one."""
    looked = subprocess.run(
        [sys.executable, "-c", LOOK], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "'timestone'" in looked.stdout


def columns(**options: str) -> list[str]:
    schema = source(path="data", **options).schema()
    assert isinstance(schema, StructType)
    return list(schema.names)


def test_options_choose_the_schema() -> None:
    assert columns() == list(NAMES)
    assert columns(COLUMNS="value,topic") == ["value", "topic"]
    assert "headers" not in columns(includeHeaders="false")


def test_a_schema_of_payloads_is_handed_to_spark_as_it_was_written() -> None:
    written = source(path="data", payload="json", payloadSchema="t double", columns="offset,payload").schema()
    assert written == "struct<`offset` bigint NOT NULL, `payload` struct<t double>>"


def test_each_kind_of_read_has_its_reader(tmp_path: Path) -> None:
    schema = source_schema()
    assert isinstance(source(path=str(tmp_path)).reader(schema), TimestoneReader)
    assert isinstance(source(path=str(tmp_path)).streamReader(schema), LimitedStreamReader)


def test_options_are_checked_before_anything_is_read() -> None:
    with pytest.raises(InvalidOption, match="invalid path: expected the folder of a store"):
        source().reader(source_schema())
    with pytest.raises(InvalidOption, match="did you mean"):
        source(path="x", topic="a/b").streamReader(source_schema()).initialOffset()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "invalid path: expected the folder of a store"),
        ({"path": "data", "startingOffsets": "soon"}, "invalid startingOffsets: expected JSON, got 'soon'"),
        ({"path": "data", "maxOffsetsPerTrigger": "0"}, "invalid maxOffsetsPerTrigger: "),
        ({"path": "data", "subscribePattern": "["}, "invalid subscribePattern: "),
    ],
    ids=["path", "offsets", "limit", "pattern"],
)
def test_schema_refuses_options_that_neither_batch_nor_stream_take(
    options: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidOption, match=f"^{re.escape(said)}"):
        source(**options).schema()


def test_schema_takes_options_of_a_batch_and_of_a_stream_alone() -> None:
    only_batch = source(path="data", offsetRanges='{"telemetry":{"0":{"ranges":[[0,9]]}}}')
    only_stream = source(path="data", startingOffsets='{"telemetry":{"0":-1}}')
    assert only_batch.schema() == only_stream.schema() == source_schema()


def test_ignored_options_of_kafka_are_reported_once(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    one = source(path=str(tmp_path), **{"kafka.bootstrap.servers": "broker:9092", "layout": "timestone"})
    one.schema()
    one.reader(source_schema())
    assert len(caplog.messages) == 1


def test_no_filters_are_taken(tmp_path: Path) -> None:
    """Spark 4.3 leaks what one query pushed down into others of the same DataFrame, and refuses readers that have
    this method unless a setting is on."""
    assert TimestoneReader.pushFilters is DataSourceReader.pushFilters


@pytest.fixture
def store(tmp_path: Path) -> Path:
    fill(tmp_path / "data", 3)
    return tmp_path / "data"


def told(spark: SparkSession, action: Callable[[], object]) -> str:
    """What Spark says of an error."""
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topik": "a"}, "InvalidOption: unknown option 'topik'; did you mean 'topics'?"),
        ({"subscribe": "alarms"}, f"InvalidOption: the store has no log alarms; it has {LOG}"),
        ({"payload": "json", "payloadSchema": "n int"}, "BadPayload: "),
        ({"path": "/nowhere"}, "NotAStore: /nowhere is not a Timestone store"),
    ],
    ids=["option", "plan", "task", "store"],
)
def test_error_of_a_batch_is_its_message_without_frames(
    spark: SparkSession, store: Path, options: dict[str, str], said: str
) -> None:
    text = told(
        spark,
        lambda: spark.read.format("timestone").options(**{"path": str(store), **options}).load().collect(),
    )
    assert said in text
    assert "Traceback" not in text
    assert 'File "' not in text
    assert len(text.strip().splitlines()) <= 2


@pytest.mark.spark
def test_invalid_option_of_a_stream_is_one_line_of_load(spark: SparkSession, store: Path) -> None:
    text = told(spark, lambda: stream(spark, store, startingOffsets="soon"))
    assert "InvalidOption: invalid startingOffsets: expected JSON, got 'soon'" in text
    assert "Streaming Query" not in text
    assert len(text.strip().splitlines()) <= 2


@pytest.mark.spark
def test_error_of_a_stream_and_of_the_sink_is_its_message_without_frames(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    frame = stream(spark, store, subscribe="alarms")
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    streamed = told(spark, lambda: writer.start().awaitTermination())
    first, *_ = streamed.partition("=== Streaming Query ===")
    assert (
        "no log alarms; it has telemetry; to wait for a log that does not exist yet, use subscribe" in first
    )
    rows = batch(spark, store).selectExpr("value", "'a/#' AS topic")
    written = told(
        spark, lambda: rows.write.format("timestone").mode("append").option("log", "x").save(str(store))
    )
    refused = told(spark, lambda: rows.write.format("timestone").mode("append").save(str(store)))
    assert "column topic: topic 'a/#' contains a wildcard" in written
    assert "invalid log: expected the log to append to" in refused
    for text in (streamed, written, refused):
        assert 'File "' not in text


@pytest.mark.spark
def test_error_of_a_function_keeps_its_frames_after_one_of_the_source(
    spark: SparkSession, store: Path
) -> None:
    told(
        spark,
        lambda: spark.read.format("timestone").options(path=str(store), subscribe="gone").load().count(),
    )

    @f.udf("int")
    def broken(_: int) -> int:
        raise ValueError("of a user's function")

    for _ in range(3):  # in each worker that may be kept
        text = told(spark, lambda: batch(spark, store).select(broken("offset")).collect())
        assert "in broken" in text
