"""The state of a pipeline, read beside the running pipeline."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import timestone
from pyspark_timestone.offsets import LogPartition, SourceOffset
from timestone_pipeline import PipelineConfig, SourceConfig, TablesConfig, open_tables, status
from timestone_pipeline.errors import DataFileFailed
from timestone_pipeline.ledger import now_us
from timestone_pipeline.progress import Progress
from timestone_pipeline.tables import tables_of
from timestone_pipeline.warehouse import Advance

TABLES = tables_of(PipelineConfig())


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    return PipelineConfig(
        source=SourceConfig(path=tmp_path / "data", logs=("mqtt",)),
        tables=TablesConfig(path=tmp_path / "tables"),
    )


def commit(config: PipelineConfig, position: int, **tables: list[str | None]) -> None:
    """One commit with tables of one column, `problem`."""
    warehouse = open_tables(config)
    with warehouse.work("stream") as work:
        for table in TABLES.all():
            if table.name in tables:
                work.folder_of(table).mkdir()
                pq.write_table(pa.table({"problem": tables[table.name]}), work.folder_of(table) / "x.parquet")
                work.collect(table)
        offset = SourceOffset({LogPartition("mqtt", 0): position})
        before = warehouse.ledger.state().progress
        warehouse.commit("batch", [work], progress=Advance(before, Progress(offset, 7, {1: 5})))


def test_status_is_consistent_before_the_first_run(config: PipelineConfig) -> None:
    found = status(config, open_tables(config))
    assert (found.exact, found.commits, found.age_s, found.logs) == (True, 0, None, ())


def test_lag_is_the_records_of_the_log_that_are_not_in_the_tables(config: PipelineConfig) -> None:
    began_us = now_us()
    with timestone.open(config.source.path) as store:
        store.log("mqtt").append_many([b"x"] * 5)
        store.log("other").append(b"not asked for")
    commit(config, 3, bronze=[None] * 3, clean=[None], dead_letters=["no device", "no time"], late=[None])
    commit(config, 4, bronze=[None], dead_letters=["no device"])
    found = status(config, open_tables(config))
    assert [(one.log, one.offset, one.synced_offset, one.lag) for one in found.logs] == [("mqtt", 4, 5, 1)]
    assert found.problems == {"no device": 2, "no time": 1}
    assert (found.late, found.commits, found.newest_us, found.closed_us) == (1, 2, 7, {1: 5})
    assert found.exact
    assert found.age_s is not None
    assert 0 <= found.age_s <= (now_us() - began_us) / 1_000_000
    assert found.to_json()["tables"][0] == {
        "table": "bronze",
        "rows": 4,
        "files": 2,
        "file_bytes": found.tables[0].file_bytes,
    }


def test_missing_rows_are_reported(config: PipelineConfig) -> None:
    commit(config, 3, bronze=[None] * 3, clean=[None])
    found = status(config, open_tables(config))
    assert not found.exact
    assert found.logs[0].lag is None, "no store"


def test_unreadable_dead_letters_are_reported_by_name(config: PipelineConfig) -> None:
    commit(config, 1, bronze=[None], dead_letters=["no time"])
    warehouse = open_tables(config)
    (letters,) = warehouse.paths(warehouse.ledger.state().of("dead_letters"))
    Path(letters).write_bytes(b"x" * 100)
    with pytest.raises(DataFileFailed, match=f"{letters}: Parquet magic bytes"):
        status(config, warehouse)
