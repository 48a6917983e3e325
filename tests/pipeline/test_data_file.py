"""The stored facts about a file: rows, bytes, and its range of times."""

import errno
import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from timestone_pipeline.data_file import DataFile, describe, naming
from timestone_pipeline.errors import DataFileFailed, InvalidConfig


def test_footer_has_the_time_range_of_a_file(tmp_path: Path) -> None:
    times = [datetime(2026, 1, 1, 0, minute, tzinfo=UTC) for minute in (3, 1, 2, 9, 7, 8)]
    path = tmp_path / "ingest_date=2026-01-01" / "x.parquet"
    path.parent.mkdir()
    table = pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "seq": range(6)})
    pq.write_table(table, path, row_group_size=3)

    found = describe("clean", tmp_path, "ingest_date=2026-01-01/x.parquet", ["ts", "not there"])
    low, high = (int(times[place].timestamp() * 1_000_000) for place in (1, 3))
    assert found.bounds == {"ts": (low, high)}
    assert (found.table, found.rows, found.bytes) == ("clean", 6, path.stat().st_size)
    assert found.partition == "ingest_date=2026-01-01"
    assert DataFile.from_json(json.loads(json.dumps(found.to_json()))) == found


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
    assert one.partition == ""


def test_error_of_a_file_names_it() -> None:
    for error, said in (
        (OSError(errno.ENOSPC, "Error writing bytes to file"), "No space left on device"),
        (OSError("Corrupt snappy data"), "Corrupt snappy data"),
        (pa.ArrowInvalid("no magic"), "no magic"),
    ):
        with pytest.raises(DataFileFailed) as caught, naming("clean/x.parquet"):
            raise error
        assert str(caught.value) == f"clean/x.parquet: {said}"
