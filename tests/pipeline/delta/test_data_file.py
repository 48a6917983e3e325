"""What is known about a file without reading its rows: rows, bytes, and its range of times."""

import errno
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from timestone_pipeline.delta.data_file import (
    TABLE,
    DataFile,
    Target,
    described,
    naming,
    picker,
    reader,
    rewriter,
    writer,
)
from timestone_pipeline.delta.location import Location
from timestone_pipeline.errors import DataFileFailed, InvalidConfig

SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("seq", pa.int64()), ("day", pa.date32())])


def test_file_is_described_as_it_was_written(tmp_path: Path) -> None:
    times = [datetime(2026, 1, 1, 0, minute, tzinfo=UTC) for minute in (3, 1, 2, 9, 7, 8)]
    batch = pa.RecordBatch.from_pydict(
        {"ts": times, "seq": list(range(6)), "day": [times[0].date()] * 6}, schema=SCHEMA
    )
    target = Target("clean", Location(str(tmp_path)), {}, "000000000012-", "day", ("ts", "not there"))
    (written,) = writer(target)(iter([batch.slice(0, 3), batch.slice(3), batch.slice(0, 0)]))
    (found,) = (described(row) for row in written.to_pylist())
    low, high = (int(times[place].timestamp() * 1_000_000) for place in (1, 3))
    assert found.bounds == {"ts": (low, high)}
    assert (found.table, found.rows, found.bytes) == ("clean", 6, (tmp_path / found.path).stat().st_size)
    assert (found.value, found.number) == ("2026-01-01", 12)
    assert found.path.startswith("day=2026-01-01/000000000012-")
    assert pq.read_table(tmp_path / found.path, partitioning=None).column_names == ["ts", "seq"]

    wider = SCHEMA.append(pa.field("added", pa.string()))
    asked = pa.RecordBatch.from_pydict({"path": [found.path], "value": [found.value]})
    rows = pa.Table.from_batches(reader(Location(str(tmp_path)), {}, wider, "day")(iter([asked])))
    assert rows.drop_columns(["added"]).to_pylist() == batch.to_pylist()
    assert rows["added"].null_count == 6


def test_each_value_of_the_partition_has_its_file_and_no_rows_have_none(tmp_path: Path) -> None:
    target = Target("clean", Location(str(tmp_path)), {}, "", "minutes", ())
    batch = pa.RecordBatch.from_pydict({"x": [1, 2, 3], "minutes": [1, 5, 1]})
    (written,) = writer(target)(iter([batch]))
    found = {
        row["day"]: pq.read_table(tmp_path / row["path"], partitioning=None)["x"].to_pylist()
        for row in written.to_pylist()
    }
    assert found == {"1": [1, 3], "5": [2]}
    (nothing,) = writer(target)(iter([batch.slice(0, 0)]))
    assert nothing.num_rows == 0


def test_rows_of_several_tables_become_files_of_each_and_others_are_left_out(tmp_path: Path) -> None:
    names = ["a", "b", "a", "c", None]
    targets = [
        Target(
            "a",
            Location(str(tmp_path / "a")),
            {},
            "",
            "minutes",
            (),
            {name: name for name in ("x", "minutes")},
        ),
        Target("b", Location(str(tmp_path / "b")), {}, "", None, (), {"why": "y"}),
        Target("all", Location(str(tmp_path / "all")), {}, "", None, (), {"x": "x"}, whole=True),
    ]
    batch = pa.RecordBatch.from_pydict(
        {TABLE: names, "x": [1, 2, 3, 4, 5], "y": [*"pqrst"], "minutes": [1] * 5}
    )
    (written,) = writer(*targets)(iter([batch]))
    found = {
        row["table"]: pq.read_table(tmp_path / row["table"] / row["path"], partitioning=None).to_pydict()
        for row in written.to_pylist()
    }
    assert found == {"a": {"x": [1, 3]}, "b": {"why": ["q"]}, "all": {"x": [1, 2, 3, 4, 5]}}


def test_file_is_written_again_without_some_rows_and_not_without_all(tmp_path: Path) -> None:
    target = Target("a", Location(str(tmp_path)), {}, "", "day", ("ts",))
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        {"log": "mqtt", "partition": 0, "offset": offset, "ts": at, "nested": [{"x": [offset]}], "day": day}
        for offset, day in enumerate("pppq")
    ]
    (written,) = writer(target)(iter([pa.RecordBatch.from_pylist(rows)]))
    paths = pa.RecordBatch.from_pydict({"path": written["path"], "value": written["day"]})
    gone = pa.Table.from_pydict(
        {"log": ["mqtt", "mqtt", "other", "mqtt"], "partition": [0, 0, 0, 1], "offset": [1, 3, 0, 2]}
    )
    (again,) = rewriter(target, gone)(iter([paths]))
    (found,) = again.to_pylist()
    assert (found["day"], found["row_count"]) == ("p", 2)
    left = pq.read_table(tmp_path / found["path"], partitioning=None).to_pylist()
    assert left == [{name: row[name] for name in row if name != "day"} for row in (rows[0], rows[2])]
    assert len(list(tmp_path.rglob("*.parquet"))) == 3


def test_named_rows_are_picked_with_what_is_known_of_them(tmp_path: Path) -> None:
    target = Target("a", Location(str(tmp_path)), {}, "", "day", ())
    rows = [
        {"log": "mqtt", "partition": 0, "offset": offset, "value": [offset], "day": day}
        for offset, day in enumerate("pppq")
    ]
    written = pa.Table.from_batches(writer(target)(iter([pa.RecordBatch.from_pylist(rows)])))
    paths = pa.RecordBatch.from_arrays([written["path"].chunk(0), written["day"].chunk(0)], ["path", "value"])
    record = {"log": pa.string(), "partition": pa.int64(), "offset": pa.int64()}
    read = reader(
        target.location, {}, pa.schema({**record, "value": pa.list_(pa.int64()), "day": pa.string()}), "day"
    )
    known = pa.Table.from_pylist(
        [
            {"log": "mqtt", "partition": 0, "offset": offset, "more": [{"nested": offset}]}
            for offset in (3, 1, 7)
        ]
    )
    schema = pa.schema(
        {**record, "was": pa.list_(pa.int64()), "more": known["more"].type, "why": "string", "day": "string"}
    )
    pick = picker(read, known, schema, {"why": "again"}, {"value": "was"})
    found = pa.Table.from_batches(pick(iter([paths])), schema).sort_by("offset").to_pylist()
    assert found == [
        {
            "log": "mqtt",
            "partition": 0,
            "offset": offset,
            "was": [offset],
            "more": [{"nested": offset}],
            "why": "again",
            "day": day,
        }
        for offset, day in ((1, "p"), (3, "q"))
    ]


def test_missing_bounds_are_reported_with_the_next_step() -> None:
    one = DataFile("clean", "x.parquet", 1, 1, {"ts": (10, 20)})
    assert one.bounds_of("ts") == (10, 20)
    with pytest.raises(InvalidConfig, match=r"clean/x.parquet .*another field than 'when'; set tables.path"):
        one.bounds_of("when")


@pytest.mark.parametrize(
    ("low", "high", "may"),
    [
        (None, None, True),
        (None, 10, False),
        (None, 11, True),
        (20, None, True),
        (21, None, False),
        (12, 13, True),
    ],
)
def test_range_is_half_open_and_bounds_are_inclusive(low: int | None, high: int | None, may: bool) -> None:
    one = DataFile("clean", "x.parquet", 1, 1, {"ts": (10, 20)})
    assert one.overlaps("ts", low, high) is may
    assert one.overlaps("of which nothing is known", low, high)
    assert one.number == 0


def test_error_of_a_file_names_it() -> None:
    for error, said in (
        (OSError(errno.ENOSPC, "Error writing bytes to file"), "No space left on device"),
        (OSError("Corrupt snappy data"), "Corrupt snappy data"),
        (pa.ArrowInvalid("no magic"), "no magic"),
    ):
        with pytest.raises(DataFileFailed) as caught, naming("clean/x.parquet"):
            raise error
        assert str(caught.value) == f"clean/x.parquet: {said}"
