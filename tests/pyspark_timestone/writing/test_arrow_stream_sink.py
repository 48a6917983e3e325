"""The stream writer of Spark 4.1 and later."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceStreamArrowWriter

import timestone
from pyspark_timestone import DefaultSource
from pyspark_timestone.options.columns import source_schema
from tests.support.spark import stream

pytestmark = pytest.mark.spark


def test_stream_writer_gets_arrow_batches_when_spark_can_hand_them_over() -> None:
    source = DefaultSource(CaseInsensitiveDict({"path": "data", "log": "copy"}))
    writer = source.streamWriter(source_schema(["value"]), overwrite=False)
    assert isinstance(writer, DataSourceStreamArrowWriter)


def test_stream_copies_values_topics_and_headers(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with timestone.open(data) as store:
        log = store.log("telemetry")
        log.append(b"one", topic="x/1", headers=[("k", b"v"), ("k", b"")])
        log.append(b"", topic="x/2")
        log.append(b"three")
    rows = stream(spark, data).select("value", "topic", "headers").writeStream.format("timestone")
    rows = rows.option("log", "copy").option("checkpointLocation", str(tmp_path / "checkpoint"))
    rows.trigger(availableNow=True).start(str(data)).awaitTermination()
    with timestone.view(data) as view:
        told, copied = (list(view.log(name).reader()) for name in ("telemetry", "copy"))
    kept = [(one.payload, one.topic, one.headers) for one in told]
    assert [(one.payload, one.topic, one.headers) for one in copied] == kept
