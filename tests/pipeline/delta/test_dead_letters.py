"""Dead letters are read in pages, the newest first."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_timestone.offsets import LogPartition, SourceOffset
from tests.support import table_files
from timestone_pipeline import PipelineConfig, SourceConfig, TablesConfig, open_tables
from timestone_pipeline.delta.dead_letters import dead_letters
from timestone_pipeline.delta.progress import Progress
from timestone_pipeline.delta.tables import tables_of
from timestone_pipeline.delta.warehouse import Warehouse

TABLES = tables_of(PipelineConfig())
LETTERS = pa.schema(
    [
        ("log", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("received_at", pa.timestamp("us", "UTC")),
        ("topic", pa.string()),
        ("value", pa.binary()),
        ("problem", pa.string()),
    ]
)
BEGAN = datetime(2026, 7, 1, tzinfo=UTC)


def letters_of(offsets: range) -> pa.Table:
    """Return a dead letter for each offset."""
    rows = [
        {
            "log": "mqtt",
            "partition": 0,
            "offset": offset,
            "received_at": BEGAN + timedelta(seconds=offset),
            "topic": "site/1",
            "value": b"\xff%d" % offset,
            "problem": "not_json" if offset % 2 else "no_device",
        }
        for offset in offsets
    ]
    return pa.Table.from_pylist(rows, LETTERS)


def commit(warehouse: Warehouse, offsets: range) -> None:
    """One batch with a dead letter for each offset."""
    if not warehouse.exists():
        table_files.create(warehouse, {table.name: LETTERS for table in TABLES.all()[:-1]})
    state = warehouse.state()
    with warehouse.work(state.number + 1) as work:
        for table in warehouse.tables.all()[:-1]:
            if table.name == "dead_letters":
                table_files.write(work, table, letters_of(offsets), "2026")
                work.commit(state.of(table), {"": state.number + 1})
        offset = SourceOffset({LogPartition("mqtt", 0): offsets.stop})
        work.commit_progress(state, state.number + 1, Progress(offset, 7, {1: 5}), {"": state.number + 1})


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    config = PipelineConfig(
        source=SourceConfig(path=str(tmp_path / "data"), logs=("mqtt",)),
        tables=TablesConfig(path=str(tmp_path / "tables")),
    )
    found = open_tables(config)
    commit(found, range(10))
    commit(found, range(10, 20))
    return found


def test_pages_meet_each_dead_letter_once_the_newest_first(warehouse: Warehouse) -> None:
    whole: list[int] = []
    after: str | None = ""
    while after is not None:
        letters, after = dead_letters(warehouse, after, 7)
        whole += [one.offset for one in letters]
    assert whole == list(range(19, -1, -1))


def test_dead_letters_of_one_problem_have_their_bytes(warehouse: Warehouse) -> None:
    letters, _ = dead_letters(warehouse, "", 3, "not_json")
    assert [one.offset for one in letters] == [19, 17, 15]
    assert letters[0].value == b"\xff19" and letters[0].topic == "site/1"
    assert letters[0].received_us == int((BEGAN + timedelta(seconds=19)).timestamp()) * 1_000_000


@pytest.mark.parametrize("after", ["nonsense", "gone.parquet:3", "x:-1"])
def test_place_that_does_not_exist_is_refused(warehouse: Warehouse, after: str) -> None:
    with pytest.raises(ValueError, match=r"invalid after|compacted"):
        dead_letters(warehouse, after, 1)
