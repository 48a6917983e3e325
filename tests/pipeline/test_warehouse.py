"""Files become part of a table at once, stay readable for a while after they were replaced, and leave no rests."""

import itertools
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from timestone_pipeline import MAINTENANCE, PipelineConfig, TablesConfig, Warehouse, open_tables
from timestone_pipeline.errors import Busy
from timestone_pipeline.progress import Progress
from timestone_pipeline.tables import tables_of
from timestone_pipeline.warehouse import STREAM, Advance, Work

TABLE = tables_of(PipelineConfig()).windows


def opened(root: Path, keep_s: int = 600) -> Warehouse:
    return open_tables(PipelineConfig(tables=TablesConfig(path=root, keep_replaced_s=keep_s)))


def write(work: Work, *values: int, minutes: int = 1) -> None:
    """Files as Spark leaves them."""
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
    """The rows of the table for somebody who has the list of its files."""
    return read(warehouse.paths(warehouse.ledger.state().of(TABLE.name)))


def read(paths: list[str]) -> list[int]:
    return sorted(
        row for path in paths for row in pq.read_table(path, partitioning=None)["messages"].to_pylist()
    )


def in_folder(warehouse: Warehouse) -> list[int]:
    return sorted(pq.read_table(warehouse.root / TABLE.name)["messages"].to_pylist())


def test_files_and_every_folder_above_them_are_on_the_disk_before_the_commit_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is new is lost with its files, after a power loss, as long as nobody flushed the one it is in."""
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


def test_what_was_committed_is_in_the_list_and_in_the_folder(tmp_path: Path) -> None:
    warehouse = opened(tmp_path)
    add(warehouse, 1, 2)
    add(warehouse, 3)
    assert listed(warehouse) == listed(opened(tmp_path)) == in_folder(warehouse) == [1, 2, 3]
    names = [path.name for path in sorted((tmp_path / TABLE.name / "minutes=1").iterdir())]
    assert names == ["000000000001-000.parquet", "000000000001-001.parquet", "000000000002-000.parquet"]
    assert list((tmp_path / "_work" / STREAM).iterdir()) == []


def test_a_replaced_file_stays_for_those_who_have_it_in_their_list(tmp_path: Path) -> None:
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


def test_the_ledger_remembers_what_a_sweep_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes to delete the files: what grows old enough meanwhile is the next sweep's."""
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


def test_what_was_not_committed_leaves_nothing(tmp_path: Path) -> None:
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


def test_stream_and_maintenance_are_one_process_each(tmp_path: Path) -> None:
    with opened(tmp_path).role(STREAM), opened(tmp_path).role(MAINTENANCE):
        for role in (STREAM, MAINTENANCE):
            with (
                pytest.raises(Busy, match=f"another process is the {role} of the tables"),
                opened(tmp_path).role(role),
            ):
                pass


def test_maintenance_does_not_clear_away_what_the_stream_is_writing(tmp_path: Path) -> None:
    warehouse = opened(tmp_path)
    with warehouse.role(STREAM), warehouse.work(STREAM) as work:
        write(work, 7)
        with opened(tmp_path).role(MAINTENANCE):
            opened(tmp_path, keep_s=0).sweep()
        warehouse.commit("batch", [work])
    assert listed(warehouse) == in_folder(warehouse) == [7]


def test_a_batch_that_began_elsewhere_is_not_committed(tmp_path: Path) -> None:
    """By a query that was stopped in the middle of it, while its successor has gone on."""
    warehouse = opened(tmp_path)
    began = warehouse.ledger.state().progress
    warehouse.commit("batch", [], progress=Advance(began, Progress(newest_us=5)))
    with warehouse.work(STREAM) as work:
        write(work, 1)
        with pytest.raises(Busy, match="another process has gone on"):
            opened(tmp_path).commit("batch", [work], progress=Advance(began, Progress(newest_us=6)))
    assert listed(warehouse) == []


def test_files_are_taken_note_of_once(tmp_path: Path) -> None:
    warehouse = opened(tmp_path)
    with warehouse.work(STREAM) as work:
        write(work, 1)
        write(work, 2)
        warehouse.commit("batch", [work])
    assert listed(warehouse) == [1, 2]


def test_files_without_rows_are_left_out(tmp_path: Path) -> None:
    warehouse = opened(tmp_path)
    with warehouse.work(STREAM) as work:
        folder = work.folder_of(TABLE)
        folder.mkdir()
        pq.write_table(pa.table({"messages": pa.array([], pa.int64())}), folder / "empty.parquet")
        assert work.collect(TABLE) == []
        assert work.rows(TABLE) == 0
