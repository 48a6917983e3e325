"""Files become part of a table at once, stay readable for a time after they were replaced, and leave no unused
files."""

import itertools
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.access import check_modes
from timestone_pipeline import MAINTENANCE, PipelineConfig, TablesConfig, Warehouse, open_tables
from timestone_pipeline.errors import Busy
from timestone_pipeline.progress import Progress
from timestone_pipeline.tables import tables_of
from timestone_pipeline.warehouse import STREAM, Advance, Work

TABLE = tables_of(PipelineConfig()).windows


def opened(root: Path, keep_s: int = 600) -> Warehouse:
    return open_tables(PipelineConfig(tables=TablesConfig(path=root, keep_replaced_s=keep_s)))


def write(work: Work, *values: int, minutes: int = 1) -> None:
    """Write files as Spark does."""
    folder = work.folder_of(TABLE) / f"minutes={minutes}"
    folder.mkdir(parents=True, exist_ok=True)
    for value in values:
        pq.write_table(pa.table({"messages": [value]}), folder / f"part-{value}.parquet")
    (work.folder_of(TABLE) / "_SUCCESS").touch()
    work.collect(TABLE)


def add(warehouse: Warehouse, *values: int, removed: list[tuple[str, str]] | None = None) -> None:
    with warehouse.work(STREAM) as work:
        write(work, *values)
        warehouse.commit("batch", [work], removed=removed or [])


def listed(warehouse: Warehouse) -> list[int]:
    """Return the rows of the table by the list of its files."""
    return read(warehouse.paths(warehouse.ledger.state().of(TABLE.name)))


def read(paths: list[str]) -> list[int]:
    return sorted(
        row for path in paths for row in pq.read_table(path, partitioning=None)["messages"].to_pylist()
    )


def in_folder(warehouse: Warehouse) -> list[int]:
    return sorted(pq.read_table(warehouse.root / TABLE.name)["messages"].to_pylist())


def test_files_and_their_folders_are_durable_before_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power loss, a new folder is lost with its files until its parent has been flushed."""
    flushed: list[str] = []
    monkeypatch.setattr(
        "timestone_pipeline.warehouse.flush",
        lambda path: flushed.append("work" if "_work" in path.parts else str(path.relative_to(tmp_path))),
    )
    monkeypatch.setattr("timestone_pipeline.ledger.flush", lambda path: flushed.append(path.name))
    add(opened(tmp_path), 1)
    commit = flushed.index("000000000001.json.draft")
    files = f"_files/{TABLE.name}"
    assert {"work", ".", "_files", files, f"{files}/minutes=1"} <= set(flushed[:commit])


def test_folders_and_ledger_are_private_to_the_owner(tmp_path: Path) -> None:
    warehouse = opened(tmp_path / "tables")
    with warehouse.role(STREAM):
        add(warehouse, 1)
    warehouse.sweep()
    for path in warehouse.root.rglob("*.parquet"):
        path.chmod(0o600)  # Spark decides its mode, and the folders exclude others
    check_modes(warehouse.root)


def test_committed_files_are_in_the_list_and_in_the_folder(tmp_path: Path) -> None:
    warehouse = opened(tmp_path)
    add(warehouse, 1, 2)
    add(warehouse, 3)
    assert listed(warehouse) == listed(opened(tmp_path)) == in_folder(warehouse) == [1, 2, 3]
    names = [path.name for path in sorted((tmp_path / TABLE.name / "minutes=1").iterdir())]
    assert names == ["000000000001-000.parquet", "000000000001-001.parquet", "000000000002-000.parquet"]
    assert list((tmp_path / "_work" / STREAM).iterdir()) == []


def test_replaced_file_stays_for_readers_with_an_older_list(tmp_path: Path) -> None:
    warehouse = opened(tmp_path)
    add(warehouse, 1, 2)
    paths = warehouse.paths(warehouse.ledger.state().of(TABLE.name))
    keys = list(warehouse.ledger.state().files)
    add(warehouse, 12, removed=keys)
    assert in_folder(warehouse) == listed(warehouse) == [12]
    assert read(paths) == [1, 2]
    warehouse.sweep()
    assert read(paths) == [1, 2], "not long enough ago"
    opened(tmp_path, keep_s=0).sweep()
    assert not any(Path(path).exists() for path in paths)
    assert listed(opened(tmp_path)) == [12]


def test_ledger_keeps_files_that_a_sweep_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For any duration of a sweep: files that become old enough during it are left to the next one."""
    warehouse = opened(tmp_path, keep_s=600)
    add(warehouse, 1)
    replaced = list(warehouse.ledger.state().files)
    add(warehouse, 2, removed=replaced)
    (replaced_us,) = warehouse.ledger.state().replaced.values()
    clock = itertools.count(replaced_us + 600_000_000)
    monkeypatch.setattr("timestone_pipeline.warehouse.now_us", lambda: next(clock))
    warehouse.sweep()
    assert (tmp_path / "_files").joinpath(*replaced[0]).exists()
    assert list(warehouse.ledger.state().replaced) == replaced


def test_uncommitted_files_are_removed(tmp_path: Path) -> None:
    warehouse = opened(tmp_path)
    add(warehouse, 1)
    with warehouse.work(STREAM) as work:
        write(work, 2)
    assert listed(warehouse) == in_folder(warehouse) == [1]
    # As kill -9 leaves it: work undone, a file moved in and no commit, a commit and no links.
    (tmp_path / "_work" / STREAM / "0ff1ce").mkdir()
    orphan = tmp_path / "_files" / TABLE.name / "minutes=1" / "000000000002-000.parquet"
    pq.write_table(pa.table({"messages": [99]}), orphan)
    (published,) = (tmp_path / TABLE.name / "minutes=1").iterdir()
    published.unlink()
    with opened(tmp_path).role(STREAM):
        assert not orphan.exists()
        assert list((tmp_path / "_work").glob("*/*")) == []
    assert listed(warehouse) == in_folder(warehouse) == [1]


def test_stream_and_maintenance_may_have_one_process_each(tmp_path: Path) -> None:
    with opened(tmp_path).role(STREAM), opened(tmp_path).role(MAINTENANCE):
        for role in (STREAM, MAINTENANCE):
            with (
                pytest.raises(Busy, match=f"another process is the {role} of the tables"),
                opened(tmp_path).role(role),
            ):
                pass


def test_maintenance_keeps_files_that_the_stream_is_writing(tmp_path: Path) -> None:
    warehouse = opened(tmp_path)
    with warehouse.role(STREAM), warehouse.work(STREAM) as work:
        write(work, 7)
        with opened(tmp_path).role(MAINTENANCE):
            opened(tmp_path, keep_s=0).sweep()
        warehouse.commit("batch", [work])
    assert listed(warehouse) == in_folder(warehouse) == [7]


def test_batch_with_another_start_is_not_committed(tmp_path: Path) -> None:
    """By a query that was stopped during the batch, while its successor has continued."""
    warehouse = opened(tmp_path)
    began = warehouse.ledger.state().progress
    warehouse.commit("batch", [], progress=Advance(began, Progress(newest_us=5)))
    with warehouse.work(STREAM) as work:
        write(work, 1)
        with pytest.raises(Busy, match="another process has committed"):
            opened(tmp_path).commit("batch", [work], progress=Advance(began, Progress(newest_us=6)))
    assert listed(warehouse) == []


def test_file_is_recorded_once(tmp_path: Path) -> None:
    warehouse = opened(tmp_path)
    with warehouse.work(STREAM) as work:
        write(work, 1)
        write(work, 2)
        warehouse.commit("batch", [work])
    assert listed(warehouse) == [1, 2]


def test_files_without_rows_are_skipped(tmp_path: Path) -> None:
    warehouse = opened(tmp_path)
    with warehouse.work(STREAM) as work:
        folder = work.folder_of(TABLE)
        folder.mkdir()
        pq.write_table(pa.table({"messages": pa.array([], pa.int64())}), folder / "empty.parquet")
        assert work.collect(TABLE) == []
        assert work.rows(TABLE) == 0
