"""One table: a commit is durable, whole or not there, and of two for the same files or batch one is refused."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support import table_files
from tests.support.windows_table import TABLE, add, opened, rows, snapshot
from timestone_pipeline.errors import Conflict, TableFailed


def test_files_and_their_folders_are_durable_before_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the commit before the next one: after a power loss no table is ahead of the one before it."""
    warehouse = opened(tmp_path)
    flushed: list[str] = []

    def seen(path: Path) -> None:
        commits = len(list((tmp_path / TABLE.name / "_delta_log").glob("*.json")))
        flushed.append(f"{commits} {'data' if path.suffix == '.parquet' else path.relative_to(tmp_path)}")

    for module in ("data_file", "snapshot"):
        monkeypatch.setattr(f"timestone_pipeline.delta.{module}.flush", seen)
    add(warehouse, 1)
    assert flushed == [
        "1 data",
        "1 windows/minutes=1",
        "1 windows",
        "2 windows/_delta_log/00000000000000000001.json",
        "2 windows/_delta_log",
    ]


def test_batch_is_committed_by_one_of_two_processes(tmp_path: Path) -> None:
    """Without locks, as in object storage: the other was stopped during the batch and has not noticed."""
    warehouse = opened(tmp_path)
    here = snapshot(warehouse)
    add(warehouse, 1, number=1)
    with warehouse.work() as work:
        table_files.write(work, TABLE, pa.table({"messages": [1]}), "1")
        with pytest.raises(Conflict, match="another process has changed the table"):
            work.commit(here, {"": 1})
    assert rows(tmp_path) == [1]


def test_file_is_replaced_once_and_an_append_in_between_is_kept(tmp_path: Path) -> None:
    warehouse = opened(tmp_path)
    add(warehouse, 1)
    here = snapshot(warehouse)
    add(warehouse, 2)
    with warehouse.work() as work:
        table_files.write(work, TABLE, pa.table({"messages": [11]}), "1")
        work.commit(here, {}, here.files())
        assert rows(tmp_path) == [2, 11]
        table_files.write(work, TABLE, pa.table({"messages": [12]}), "1")
        with pytest.raises(Conflict):
            work.commit(here, {}, here.files())
    assert rows(tmp_path) == [2, 11]


@pytest.mark.slow
def test_delta_log_and_open_files_do_not_grow_with_commits_and_marks_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timestone_pipeline.delta.warehouse._LOG_RETENTION", "interval 0 seconds")
    warehouse = opened(tmp_path)
    add(warehouse, 0, mark=7)
    held: list[tuple[int, int]] = []
    for number in range(1, 61):
        add(warehouse, number, number=number, replace=True)
        files = len(list((tmp_path / TABLE.name / "_delta_log").iterdir()))
        held.append((files, len(os.listdir("/proc/self/fd"))))
    assert max(files for files, _ in held) <= 24, "the commits since a checkpoint, and that"
    assert held[59][1] <= held[19][1]
    assert (snapshot(warehouse).number, snapshot(warehouse).mark("mark"), rows(tmp_path)) == (60, 7, [60])


def test_damaged_delta_log_is_reported_in_one_line(tmp_path: Path) -> None:
    warehouse = opened(tmp_path)
    add(warehouse, 1)
    max((tmp_path / TABLE.name / "_delta_log").glob("*.json")).write_bytes(b"garbage")
    with pytest.raises(TableFailed, match=f"{tmp_path}/windows: [^\n]*$"):
        snapshot(warehouse)


def test_committed_rows_are_there_once_and_an_older_version_can_be_read(tmp_path: Path) -> None:
    warehouse = opened(tmp_path)
    add(warehouse, 1, 2)
    add(warehouse, 3)
    assert rows(tmp_path) == [1, 2, 3]
    add(warehouse, 12, replace=True)
    assert rows(tmp_path) == [12]
    assert rows(tmp_path, version=2) == [1, 2, 3]
    assert snapshot(warehouse).rows == 1
