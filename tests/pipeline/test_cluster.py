"""Source, sink and pipeline under `spark-submit` on a cluster: nothing relies on the driver's process or folder."""

import json
import os
import secrets
import shutil
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

import timestone
from tests.cli.processes import timestone as command
from tests.support.buckets import upload_store
from tests.support.plant import LOG, Plant, message
from tests.support.s3_server import BUCKET, S3Server
from tests.support.spark_cluster import StandaloneCluster, can_hide, other_users
from timestone_pipeline import PipelineConfig, SourceConfig, TablesConfig, open_tables, status
from timestone_tiering.buckets.bucket_url import open_bucket
from timestone_tiering.operations.restore import restore_store

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
    assert found["code"] == 0, done.stderr[-3000:]
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


BUCKET_PROGRAM = """
import json, os, sys
from pathlib import Path

from pyspark_timestone.session import spark_session
from timestone_cli.main import main

log, driver = sys.argv[1:3]
spark = spark_session("cluster")
records = spark.read.format("timestone").option("minPartitions", 8).load(log)
rows = records.select("offset").collect()
program = driver + "/submitted.py"
place = lambda _: f"{os.getcwd()} {os.path.exists(program)} {os.getuid()}"
seen = spark.sparkContext.parallelize(range(8), 8).map(place)
found = {"offsets": sorted(row["offset"] for row in rows), "at": sorted(set(seen.collect()))}
found["code"] = main(["pipeline", *sys.argv[3:]])
Path("found.json").write_text(json.dumps(found))
"""


@pytest.mark.timeout(1500)
def test_a_cluster_without_a_shared_folder_works_on_log_and_tables_in_a_bucket(
    s3: S3Server, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is gone: only the bucket is left. A restored one gives the same tables, row for row. The workers are
    other users than the driver and each other, where this one may start them."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    log, tables = (f"s3://{BUCKET}/{secrets.token_hex(4)}/{name}" for name in ("log", "tables"))
    messages = [message(f"d{number % 3}", number) for number in range(400)]
    with timestone.open(tmp_path / "data", log=timestone.LogConfig(segment_entries=101)) as store:
        for first in range(0, 400, 100):
            store.log(LOG).append_many(messages[first : first + 100], topic="site/1")
        store.log(LOG).append_many([b"no message", messages[0]], topic="site/1")
        store.log(LOG).roll()
        upload_store(store, open_bucket(log))
    shutil.rmtree(tmp_path / "data")

    driver = tmp_path / "driver"
    driver.mkdir()
    (driver / "submitted.py").write_text(BUCKET_PROGRAM)
    file = f'[source]\npath = "{log}"\nlogs = ["{LOG}"]\n[tables]\npath = "{tables}"\n'
    (driver / "pipeline.toml").write_text(file)
    (tmp_path / "cluster").mkdir()
    conf = {f"spark.executorEnv.{name}": value for name, value in s3.environment.items()}
    users = other_users()
    with StandaloneCluster(tmp_path / "cluster", hidden=driver, users=users) as cluster:
        program = driver / "submitted.py"
        done = cluster.submit(
            program, log, str(driver), "run", "--once", "--final", timeout_s=1200, conf=conf
        )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((driver / "found.json").read_text())
    assert (found["code"], found["offsets"]) == (0, list(range(402))), done.stderr[-3000:]
    assert [at.split("/cluster/")[1].split("/")[0] for at in found["at"]] == ["worker-0", "worker-1"]
    assert {at.split()[1] for at in found["at"]} == {str(not can_hide())}
    assert len({at.split()[2] for at in found["at"]} - {str(os.getuid())}) == len(users)
    assert sorted(one.name.partition("-")[0] for one in driver.iterdir()) == [
        "found.json",
        "pipeline",
        "pipeline.toml",
        "submitted.py",
    ]

    asked = "SELECT count(*) AS n FROM bronze"
    assert json.loads(command("pipeline", "query", "--json", asked, cwd=driver).stdout) == {"n": 402}
    with timestone.view(log) as view:
        records = duckdb.from_arrow(view.log(LOG).read(0, max_records=1000).to_arrow())
    assert records.count("*").fetchall() == [(402,)]

    restore_store(open_bucket(log), tmp_path / "new" / "data")
    fresh = Plant(spark, tmp_path / "new")
    fresh.run(final=True)
    fresh.check()
    there = Plant(spark, tmp_path / "there", tables=TablesConfig(path=tables))
    for name, count in fresh.counts().items():
        rows, others = fresh.table(name), there.table(name)
        assert (rows.num_rows, others.num_rows) == (count, count)
        assert sorted(map(repr, rows.to_pylist())) == sorted(map(repr, others.to_pylist())), name
    assert fresh.counts() == there.counts() and (fresh.counts()["bronze"], fresh.counts()["duplicates"]) == (
        402,
        1,
    )
