"""Source, sink and pipeline under `spark-submit` on a cluster: nothing relies on the driver's process or folder."""

import json
from pathlib import Path

import pytest

import timestone
from tests.support.plant import LOG, message
from tests.support.spark_cluster import StandaloneCluster
from timestone_pipeline import PipelineConfig, SourceConfig, TablesConfig, open_tables, status

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = """
import json, os, sys
from pathlib import Path

from pyspark.sql import functions as f

from pyspark_timestone.history import read_history
from pyspark_timestone.session import spark_session
from timestone_cli.main import main

spark = spark_session("cluster")
records = spark.read.format("timestone").option("minPartitions", 8).load("data")
where = f.udf(lambda offset: f"{os.getcwd()} {os.getpid()}")
rows = records.select("offset", where("offset").alias("at")).collect()
found = {
    "master": spark.sparkContext.master,
    "driver": os.getpid(),
    "offsets": sorted(row["offset"] for row in rows),
    "at": sorted({row["at"] for row in rows}),
    "history": read_history(spark, "data").count(),
    "columnar": "ColumnarToRow" in records._jdf.queryExecution().executedPlan().toString(),
}
copies = records.where("offset < 100").select("topic", "value")
copies.write.format("timestone").option("log", "copies").mode("append").save("data")
found["code"] = main(["pipeline", *sys.argv[1:]])
Path("found.json").write_text(json.dumps(found))
"""


@pytest.mark.timeout(1500)  # four Javas besides the driver's, each of which has to warm up
def test_submitted_work_runs_in_the_workers(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store:
        log = store.log(LOG)
        for first in range(0, 400, 100):
            numbers = range(first, first + 100)
            log.append_many([message(f"d{number % 3}", number) for number in numbers], topic="site/1")
        log.append(b"no message", topic="site/1")
    (tmp_path / "pipeline.toml").write_text(f'[source]\npath = "data"\nlogs = ["{LOG}"]\n')
    program = tmp_path / "submitted.py"
    program.write_text(PROGRAM)
    (tmp_path / "cluster").mkdir()
    with StandaloneCluster(tmp_path / "cluster") as cluster:
        done = cluster.submit(program, "run", "--once", timeout_s=1200)
    assert done.returncode == 0, done.stderr[-3000:]

    found = json.loads((tmp_path / "found.json").read_text())
    assert found["master"] == cluster.url
    assert found["offsets"] == list(range(401)) and found["history"] == 401
    assert found["columnar"]
    folders = {at.split()[0].removeprefix(f"{tmp_path}/cluster/").split("/")[0] for at in found["at"]}
    assert folders == {"worker-0", "worker-1"}
    assert str(found["driver"]) not in {at.split()[1] for at in found["at"]}
    with timestone.view(tmp_path / "data") as view:
        assert view.log("copies").end_offset == 100

    config = PipelineConfig(
        source=SourceConfig(path=str(tmp_path / "data"), logs=(LOG,)),
        tables=TablesConfig(path=str(tmp_path / "tables")),
    )
    said = status(config, open_tables(config))
    assert said.exact and [one.lag for one in said.logs] == [0]
    rows = {table.table: table.rows for table in said.tables}
    assert (rows["bronze"], rows["clean"], rows["dead_letters"]) == (401, 400, 1)
