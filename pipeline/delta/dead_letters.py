"""Dead letters of a pipeline, the newest first, read without Spark and without a lock."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .data_file import DataFile, naming
from .location import Location
from .warehouse import Warehouse

_COLUMNS = ("log", "partition", "offset", "received_at", "topic", "value", "problem")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Message that could not become a row of clean."""

    log: str
    partition: int
    offset: int
    received_us: int
    topic: str | None
    value: bytes
    problem: str


def dead_letters(
    warehouse: Warehouse, after: str, limit: int, problem: str | None = None
) -> tuple[list[DeadLetter], str | None]:
    """Return up to `limit` dead letters, the newest first, and where to continue; None at the end. after: what the call
    before returned; empty for the first. problem: only of this one.

    Raises ValueError if the tables were compacted since the call before, TableFailed, DataFileFailed, OSError."""
    state = warehouse.state()
    snapshot = state.of(warehouse.tables.dead_letters)
    files = [one for one in snapshot.files() if one.number <= state.number]
    files.sort(key=lambda one: (one.number, one.path), reverse=True)
    path, _, row = after.rpartition(":")
    if after and not row.isdecimal():
        raise ValueError(f"invalid after: expected what the call before returned, got {after!r:.60}")
    skipped = int(row) if after else 0
    if path:
        if all(one.path != path for one in files):
            raise ValueError("the tables were compacted since the call before: begin again")
        files = files[[one.path for one in files].index(path) :]
    found: list[DeadLetter] = []
    for one in files:
        letters = _letters(snapshot.location, one)
        for number in range(skipped, len(letters)):
            if problem is not None and letters[number].problem != problem:
                continue
            if len(found) == limit:
                return found, f"{one.path}:{number}"
            found.append(letters[number])
        skipped = 0
    return found, None


def _letters(location: Location, one: DataFile) -> list[DeadLetter]:
    """Return the rows of a file, the newest first."""
    files = location.threaded_filesystem(location.options())
    with (
        naming(f"{location.uri}/{one.path}"),
        pq.ParquetFile(files.open_input_file(one.path)) as opened,
    ):
        rows = opened.read(columns=list(_COLUMNS))
    times = rows["received_at"].cast(pa.timestamp("us")).cast(pa.int64())
    columns: dict[str, list[Any]] = {
        name: rows[name].to_pylist() for name in _COLUMNS if name != "received_at"
    }
    letters = [
        DeadLetter(
            log=columns["log"][number],
            partition=columns["partition"][number],
            offset=columns["offset"][number],
            received_us=at_us,
            topic=columns["topic"][number],
            value=columns["value"][number] or b"",
            problem=columns["problem"][number] or "",
        )
        for number, at_us in enumerate(times.to_pylist())
    ]
    letters.sort(
        key=lambda letter: (letter.received_us, letter.log, letter.partition, letter.offset), reverse=True
    )
    return letters
