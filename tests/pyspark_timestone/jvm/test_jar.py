"""The class in a jar: a session that knows nothing of Timestone scans by columns."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.spark_cluster import spark_environment, spark_submit
from tests.support.stores import fill

pytestmark = pytest.mark.spark

JOB = """
import json, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
frame = spark.read.format("timestone").load(sys.argv[1])
chosen = frame.where("offset >= 2000")
print(json.dumps([
    "ColumnarToRow" in frame._jdf.queryExecution().executedPlan().toString(),
    chosen.rdd.getNumPartitions(),
    chosen.selectExpr("count(value)", "min(offset)").first(),
    sorted(name for name in sys.modules if name.startswith("pyspark_timestone")),
]))
"""


def test_plain_session_scans_by_columns_when_it_has_the_jar(tmp_path: Path) -> None:
    fill(tmp_path / "data", 2500)
    jar, job = tmp_path / "timestone-spark.jar", tmp_path / "job.py"
    job.write_text(JOB)
    made = subprocess.run([sys.executable, "-m", "pyspark_timestone.jvm.jar", str(jar)], check=False)
    assert made.returncode == 0
    done = spark_submit(
        ["--master", "local[1]", "--conf", f"spark.jars={jar}", str(job), str(tmp_path / "data")],
        spark_environment(tmp_path),
        cwd=tmp_path,
        timeout_s=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == [True, 1, [500, 2000], []]


@pytest.mark.parametrize("words", [[], ["spark.zip"], ["a.jar", "b.jar"]], ids=str)
def test_command_line_that_is_not_valid_is_refused(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pyspark_timestone.jvm.jar", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "usage: python -m pyspark_timestone.jvm.jar FILE.jar\n")
