"""Our daemon in a real session. What it says, and does not say, is in test_worker_process.py."""

import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.spark import batch
from tests.support.stores import fill


def program(_: int) -> str:
    spec = sys.modules["__main__"].__spec__
    return "" if spec is None else spec.name


@pytest.mark.spark
def test_tasks_run_in_workers_of_our_daemon_and_go_on_after_a_query_that_wanted_few_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    fill(tmp_path, 100)
    numbers = spark.sparkContext.range(100_000)
    assert numbers.map(program).take(1) == ["pyspark_timestone.daemon"]
    assert len(batch(spark, tmp_path).limit(3).collect()) == 3
    assert batch(spark, tmp_path).count() == 100
