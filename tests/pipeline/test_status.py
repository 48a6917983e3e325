"""The state of a pipeline, read beside the running pipeline."""

import time
from pathlib import Path

import pyarrow as pa
import pytest

import timestone
from pyspark_timestone.offsets import LogPartition, SourceOffset
from tests.support import table_files
from timestone_pipeline import PipelineConfig, SourceConfig, TablesConfig, open_tables, status
from timestone_pipeline.delta.progress import Progress
from timestone_pipeline.delta.tables import tables_of
from timestone_pipeline.errors import DataFileFailed

TABLES = tables_of(PipelineConfig())
PROBLEM = pa.schema([("problem", pa.string())])


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    return PipelineConfig(
        source=SourceConfig(path=str(tmp_path / "data"), logs=("mqtt",)),
        tables=TablesConfig(path=str(tmp_path / "tables")),
    )


def commit(
    config: PipelineConfig, position: int, *, to: str = "progress", **tables: list[str | None]
) -> None:
    """One batch with tables of one column, `problem`, killed after the commit of the table `to`."""
    warehouse = open_tables(config)
    if not warehouse.exists():
        table_files.create(warehouse, {table.name: PROBLEM for table in TABLES.all()[:-1]})
    state = warehouse.state()
    with warehouse.work(state.number + 1) as work:
        for table in warehouse.tables.all():
            if table.name in tables:
                table_files.write(
                    work, table, pa.table({"problem": pa.array(tables[table.name], pa.string())}), "2026"
                )
                work.commit(state.of(table), {"": state.number + 1})
            if table.name == to:
                break
        else:
            raise AssertionError(to)
        if to == "progress":
            offset = SourceOffset({LogPartition("mqtt", 0): position})
            work.commit_progress(state, state.number + 1, Progress(offset, 7, {1: 5}), {"": state.number + 1})


def test_status_is_consistent_before_the_first_run(config: PipelineConfig) -> None:
    found = status(config, open_tables(config))
    assert (found.exact, found.batches, found.age_s, found.logs) == (True, 0, None, ())


def test_lag_is_the_records_of_the_log_that_are_not_in_the_tables(config: PipelineConfig) -> None:
    began_us = time.time_ns() // 1000
    with timestone.open(config.source.path) as store:
        store.log("mqtt").append_many([b"x"] * 5)
        store.log("other").append(b"not asked for")
    commit(config, 3, bronze=[None] * 3, clean=[None], dead_letters=["no device", "no time"], late=[None])
    commit(config, 4, bronze=[None], dead_letters=["no device"])
    found = status(config, open_tables(config))
    assert [(one.log, one.offset, one.synced_offset, one.lag) for one in found.logs] == [("mqtt", 4, 5, 1)]
    assert found.problems == {"no device": 2, "no time": 1}
    assert (found.late, found.batches, found.newest_us, found.closed_us) == (1, 2, 7, {1: 5})
    assert found.exact
    assert found.age_s is not None
    assert 0 <= found.age_s <= (time.time_ns() // 1000 - began_us) / 1_000_000
    assert found.to_json()["tables"][0] == {
        "table": "bronze",
        "rows": 4,
        "files": 2,
        "file_bytes": found.tables[0].file_bytes,
    }


def test_batch_that_is_being_committed_does_not_count(config: PipelineConfig) -> None:
    commit(config, 3, bronze=[None] * 3, clean=[None], dead_letters=["no device", "no time"])
    commit(config, 4, bronze=[None, None], dead_letters=["no device"], clean=[None], to="dead_letters")
    found = status(config, open_tables(config))
    assert found.exact
    assert (found.batches, found.problems) == (1, {"no device": 1, "no time": 1})
    assert [one.rows for one in found.tables[:3]] == [3, 1, 2]


def test_missing_rows_are_reported(config: PipelineConfig) -> None:
    commit(config, 3, bronze=[None] * 3, clean=[None])
    found = status(config, open_tables(config))
    assert not found.exact
    assert found.logs[0].lag is None, "no store"


def test_unreadable_dead_letters_are_reported_by_name(config: PipelineConfig) -> None:
    commit(config, 1, bronze=[None], dead_letters=["no time"])
    warehouse = open_tables(config)
    (letters,) = warehouse.uris(warehouse.state().of(warehouse.tables.dead_letters).files())
    Path(letters).write_bytes(b"x" * 100)
    with pytest.raises(DataFileFailed, match=f"{letters}: Parquet magic bytes"):
        status(config, warehouse)
