"""Spark's long error texts reduced to the one line that matters."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.sql import SparkSession

from timestone_pipeline.errors import QueryFailed
from timestone_pipeline.failure import STOPPED, in_one_line, spark_errors_in_one_line

SOURCE = """[PYTHON_DATA_SOURCE_ERROR] Failed when Python data source instance runs: Traceback (most recent call last):
  File "x.py", line 1, in partitions
    raise DataLoss(what)
pyspark_timestone.errors.DataLoss: mqtt-0: offsets 0 to 9 (10 records) have been deleted

\tat org.apache.spark.Something(Something.scala:1)"""

WITHOUT_FRAMES = """[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: \
pyspark_timestone.errors.DataLoss: mqtt-0: offsets 0 to 9 (10 records) have been deleted
 SQLSTATE: 38000"""


@pytest.mark.parametrize("text", [SOURCE, WITHOUT_FRAMES], ids=["with frames", "without"])
def test_reason_of_the_source_is_extracted_from_the_error(text: str) -> None:
    assert str(in_one_line(RuntimeError(text))) == "mqtt-0: offsets 0 to 9 (10 records) have been deleted"


def test_foreign_error_is_reduced_to_its_innermost_reason() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Python worker failed to connect back."
        " SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: [id = 1]\nThread State: RUNNABLE"
    )
    assert str(in_one_line(RuntimeError(text))) == "Spark gave up: Python worker failed to connect back."
    text = "Job aborted\nCaused by: java.io.IOException: No space left on device\n\tat x"
    assert "No space left on device" in str(in_one_line(RuntimeError(text)))
    assert "\n" not in str(in_one_line(RuntimeError("a\nb")))


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "Connection refused"),
        Py4JNetworkError("Answer from Java side is empty"),
        Py4JError("An error occurred while calling o1125.parquet"),
    ],
)
def test_end_of_java_is_reported_as_such(error: Exception) -> None:
    with pytest.raises(QueryFailed, match="Spark's Java has ended"), spark_errors_in_one_line():
        raise error


@pytest.mark.spark
def test_file_with_an_older_field_type_is_reported_with_the_next_step(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "clean" / "ingest_date=2026-01-01"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"seq": [1, 2]}), folder / "1.parquet")
    told = r"^table clean: column 'seq' is INT64 in its files and string in the settings; give tables\.path another"
    with pytest.raises(QueryFailed, match=told), spark_errors_in_one_line():
        spark.read.schema("seq string").parquet(str(folder)).collect()


@pytest.mark.spark
def test_spark_error_is_reported_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    with (
        pytest.raises(QueryFailed, match=r"^Spark gave up: .*PATH_NOT_FOUND.*/nowhere") as caught,
        spark_errors_in_one_line(),
    ):
        spark.read.parquet(str(tmp_path / "nowhere"))
    assert "\n" not in str(caught.value)


@pytest.mark.spark
def test_stopped_query_is_recognised_in_sparks_error(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    execution = jvm.org.apache.spark.sql.execution.streaming.runtime.StreamExecution
    context = spark.sparkContext._jsc.sc()
    for text, ends in (
        (f"Traceback:\n  in work\nQueryFailed: {STOPPED}", True),
        ("QueryFailed: disk full", False),
    ):
        assert execution.isInterruptionException(jvm.py4j.Py4JException(text), context) is ends
