"""SQL and plain Parquet, of one state of the tables."""

import subprocess
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.cli.processes import COMMAND
from tests.support.s3_server import BUCKET, S3Server
from tests.support.windows_table import add, opened
from timestone_pipeline import PipelineError, export, query


def test_query_sees_current_rows_and_partitions(tmp_path: Path) -> None:
    warehouse = opened(tmp_path)
    add(warehouse, 1, 2)
    add(warehouse, 7, replace=True)
    with query(warehouse, "SELECT messages, minutes, (SELECT count(*) FROM clean) AS n FROM windows") as rows:
        assert rows.read_all().to_pylist() == [{"messages": 7, "minutes": "1", "n": 0}]
    with query(warehouse, "CREATE TEMP TABLE x (y int)") as rows:
        assert rows.read_all().num_rows == 0
    with (
        pytest.raises(PipelineError, match=r"the query failed: .*nowhere[^\n]*$"),
        query(warehouse, "FROM nowhere"),
    ):
        pass


@pytest.mark.slow
def test_query_of_a_bucket_ends_with_the_interpreter_when_rows_are_left(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    root = f"s3://{BUCKET}/{tmp_path.name}/tables"
    warehouse = opened(root)
    for number in range(2):
        add(warehouse, *range(number, 100_000))
    (tmp_path / "pipeline.toml").write_text(f'[tables]\npath = "{root}"\n')
    words = ["pipeline", "query", "SELECT minutes FROM windows LIMIT 3", "--json"]
    found = subprocess.run([*COMMAND, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.count("minutes") == 3


def test_other_programs_read_the_current_rows(tmp_path: Path) -> None:
    warehouse = opened(tmp_path)
    add(warehouse, 1, 2)
    add(warehouse, 7, 8, replace=True)
    delta = DeltaTable(tmp_path / "windows")
    assert sorted(delta.to_pandas()["messages"]) == [7, 8]
    with duckdb.connect() as connection:
        connection.register("found", delta.to_pyarrow_dataset())
        assert connection.sql("SELECT sum(messages) FROM found").fetchall() == [(15,)]
    assert DeltaTable(tmp_path / "windows", version=1).to_pandas()["messages"].sum() == 3
    changes = pa.table(delta.load_cdf(starting_version=2)).select(["messages", "_change_type"])
    assert sorted(tuple(row.values()) for row in changes.to_pylist()) == [
        (1, "delete"),
        (2, "delete"),
        (7, "insert"),
        (8, "insert"),
    ]
    polars = pytest.importorskip("polars")
    assert sorted(polars.read_delta(str(tmp_path / "windows"))["messages"]) == [7, 8]


def test_export_has_the_current_files_and_nothing_else(tmp_path: Path) -> None:
    warehouse = opened(tmp_path / "tables")
    add(warehouse, 1, 2)
    add(warehouse, 7, replace=True)
    assert export(warehouse, tmp_path / "copy", ("windows",)) == {"windows": 1}
    assert pq.read_table(tmp_path / "copy" / "windows").to_pylist() == [{"messages": 7, "minutes": 1}]
    with pytest.raises(PipelineError, match="not an empty folder"):
        export(warehouse, tmp_path / "copy")
    with pytest.raises(PipelineError, match=r"invalid table: expected one of bronze, .*, got 'x'"):
        export(warehouse, tmp_path / "other", ("x",))
