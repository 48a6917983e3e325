"""Tables in a bucket, on a real S3 server: the same tables, without a folder that anyone shares."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cli.processes import timestone
from tests.pipeline.test_interrupted import killed_after
from tests.support.plant import Plant, message
from tests.support.s3_server import BUCKET, SECRET, S3Server
from timestone_pipeline import (
    MAINTENANCE,
    DeduplicateConfig,
    MessageConfig,
    TablesConfig,
    backfill,
    compact,
    open_tables,
    reprocess,
    status,
)
from timestone_pipeline.errors import TableFailed

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def tables(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TablesConfig:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return TablesConfig(path=f"s3://{BUCKET}/{tmp_path.name}/tables")


@pytest.mark.timeout(3000)
def test_tables_in_a_bucket_are_exact_and_need_no_folder(
    spark: SparkSession, tmp_path: Path, tables: TablesConfig
) -> None:
    plant = Plant(spark, tmp_path, tables=tables, deduplicate=DeduplicateConfig(within_s=600))
    good = [message("d", at, at_s=at) for at in range(0, 3000, 3)]
    ahead = message("ahead", 1, ts=(datetime.now(UTC) + timedelta(hours=1)).isoformat())
    plant.send(*good[:700], good[3], b"broken", ahead)
    plant.run()
    late = message("late", 1, at_s=60)
    plant.send(*good[700:], late)
    assert killed_after(3, plant.run)
    plant.run(final=True)
    plant.check()
    assert plant.counts()["dead_letters"] == 2

    warehouse = open_tables(plant.config)
    with warehouse.role(MAINTENANCE):
        assert backfill(plant.config, warehouse, spark) is not None
        plant.changed(message=MessageConfig(future_s=7200))
        assert reprocess(plant.config, warehouse, spark) is not None
        compact(plant.config, warehouse)
    plant.run(final=True)
    with warehouse.role(MAINTENANCE):
        backfill(plant.config, warehouse, spark)
    plant.check()
    assert plant.windows() == plant.averages([*good, late, ahead])
    assert status(plant.config, warehouse).exact
    assert sorted(path.name.partition("-")[0] for path in tmp_path.iterdir()) == ["data", "pipeline"], (
        "a checkpoint"
    )

    (tmp_path / "pipeline.toml").write_text(f'[source]\npath = "data"\n[tables]\npath = "{tables.path}"\n')
    asked = 'SELECT count(*) AS n FROM clean JOIN bronze USING (log, partition, "offset")'
    done = timestone("pipeline", "query", "--json", asked, cwd=tmp_path)
    assert (json.loads(done.stdout), done.stderr) == ({"n": 1002}, "")
    done = timestone("pipeline", "export", "copy", "last", cwd=tmp_path)
    assert (done.stdout, len(list((tmp_path / "copy" / "last").iterdir()))) == ("copy/last: 3 rows\n", 1)


def test_error_of_the_storage_has_no_credentials(
    s3: S3Server, tables: TablesConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant = Plant(None, tmp_path, tables=tables)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    with pytest.raises(TableFailed) as caught:
        open_tables(plant.config).state()
    assert SECRET not in str(caught.value) and "nobody" not in str(caught.value)
    assert "\n" not in str(caught.value)
