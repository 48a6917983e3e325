"""Dead letters: whole files, the same ones when a task runs again."""

from pathlib import Path

import pyarrow.parquet as pq

import timestone
from pyspark_timestone.offsets import LogPartition, OffsetRange
from pyspark_timestone.payload.dead_letters import DeadLetters
from tests.support.stores import LOG, fill, value_of

TASK = OffsetRange(LogPartition(LOG, 0), 0, 10)


def test_a_task_that_runs_again_writes_its_file_again(tmp_path: Path) -> None:
    fill(tmp_path / "data", 10)
    with timestone.view(tmp_path / "data") as view:
        batch = view.log(LOG).read(0)
    for _ in range(2):
        letters = DeadLetters(tmp_path / "dead", TASK)
        letters.add(batch, {2: "odd", 7: "too long"})
        letters.write()
    (path,) = (tmp_path / "dead" / f"{LOG}-0").iterdir()
    assert path.name == f"{0:020}-{10:020}.parquet"
    rows = pq.read_table(path).to_pylist()
    assert [(row["offset"], row["value"], row["topic"], row["reason"]) for row in rows] == [
        (2, value_of(2), "devices/2/state", "odd"),
        (7, value_of(7), "devices/2/state", "too long"),
    ]


def test_many_batches_make_one_file_and_are_not_held_in_memory(tmp_path: Path) -> None:
    fill(tmp_path / "data", 10)
    with timestone.view(tmp_path / "data") as view:
        batches = [view.log(LOG).read(offset, max_records=2) for offset in range(0, 10, 2)]
    letters = DeadLetters(tmp_path / "dead", TASK)
    folder = tmp_path / "dead" / f"{LOG}-0"
    for batch in batches:
        letters.add(batch, {0: "odd", 1: "odd"})
        (unfinished,) = folder.iterdir()
        assert unfinished.name.startswith(".")
    letters.write()
    (path,) = folder.iterdir()
    assert pq.read_table(path)["offset"].to_pylist() == list(range(10))
    assert pq.read_metadata(path).num_row_groups == len(batches)


def test_a_task_that_does_not_come_to_its_end_leaves_no_file(tmp_path: Path) -> None:
    fill(tmp_path / "data", 10)
    with timestone.view(tmp_path / "data") as view:
        batch = view.log(LOG).read(0)
    letters = DeadLetters(tmp_path / "dead", TASK)
    letters.discard()
    letters.add(batch, {2: "odd"})
    letters.discard()
    letters.discard()
    assert list((tmp_path / "dead" / f"{LOG}-0").iterdir()) == []


def test_a_task_without_bad_records_writes_nothing(tmp_path: Path) -> None:
    DeadLetters(tmp_path / "dead", TASK).write()
    assert not (tmp_path / "dead").exists()
