"""The whole job: a store in, a Parquet table out, and counts that add up."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import timestone
from timestone_pipeline import Counts, write_minute_averages

pytestmark = pytest.mark.spark


def test_every_record_is_in_the_table_or_counted_as_rejected(spark: SparkSession, tmp_path: Path) -> None:
    messages = [
        json.dumps(
            {
                "device": f"d{number % 4}",
                "ts": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z",
                "temperature": number,
            }
        ).encode()
        for number in range(600)
    ]
    with timestone.open(tmp_path / "data") as store:
        store.log("mqtt").append_many([*messages, b"broken", b""], topic="site/1")
        store.log("other").append(b"not asked for")
        # The store is open, as it is when a server runs.
        counts = write_minute_averages(spark, tmp_path / "data", tmp_path / "report", log="mqtt")
    assert counts == Counts(rows=602, rejected=2)
    table = pq.read_table(tmp_path / "report").to_pydict()
    assert sum(table["messages"]) == 600
    assert len(table["device"]) == 4 * 10
    assert table["device"] == sorted(table["device"])
    assert table["temperature_max"][:2] == [56.0, 116.0]


def test_a_table_that_is_there_is_not_overwritten(spark: SparkSession, tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store:
        store.log("mqtt").append(b"{}")
    (tmp_path / "report").mkdir()
    with pytest.raises(AnalysisException, match="PATH_ALREADY_EXISTS"):
        write_minute_averages(spark, tmp_path / "data", tmp_path / "report", log="mqtt")
