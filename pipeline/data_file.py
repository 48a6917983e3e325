"""Parquet file of a table, with the facts known without reading its rows."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from .errors import DataFileFailed, InvalidConfig


@dataclass(frozen=True, slots=True)
class DataFile:
    """File added by a commit. `path` is relative to the table: `ingest_date=2026-01-31/000000000012-000.parquet`."""

    table: str
    path: str
    rows: int
    bytes: int
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Lowest and highest value of a timestamp column, both included, in microseconds since 1970."""

    @property
    def partition(self) -> str:
        """Return `ingest_date=2026-01-31`; empty in a table without partitions."""
        return self.path.rpartition("/")[0]

    def bounds_of(self, column: str) -> tuple[int, int]:
        """Return the bounds of `column`. Raises InvalidConfig if they were not stored: the file was written when the
        time of a message was another field."""
        if column not in self.bounds:
            raise InvalidConfig(
                f"message.time: {self.table}/{self.path} was written when it was another field than {column!r}; set"
                " tables.path to another folder to build the tables again from the log"
            )
        return self.bounds[column]

    def overlaps(self, column: str, low_us: int | None, high_us: int | None) -> bool:
        """Return whether it may have rows with `low_us` <= `column` < `high_us`; None is no limit."""
        if column not in self.bounds:
            return True
        lowest, highest = self.bounds[column]
        return (low_us is None or highest >= low_us) and (high_us is None or lowest < high_us)

    def to_json(self) -> dict[str, Any]:
        """Return the entry of the file in a commit."""
        return {
            "table": self.table,
            "path": self.path,
            "rows": self.rows,
            "bytes": self.bytes,
            "bounds": {name: list(pair) for name, pair in self.bounds.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Decode an entry. Raises KeyError, TypeError or ValueError for an invalid one."""
        bounds = {str(name): (int(low), int(high)) for name, (low, high) in data["bounds"].items()}
        return cls(str(data["table"]), str(data["path"]), int(data["rows"]), int(data["bytes"]), bounds)


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Convert errors of the block to DataFileFailed with the data file `path`: Arrow does not name the file."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        number = error.errno if isinstance(error, OSError) else None
        raise DataFileFailed(f"{path}: {os.strerror(number) if number else error}") from error


def describe(table: str, folder: Path, path: str, columns: Sequence[str]) -> DataFile:
    """Return the facts in the footer of the file `folder / path`. Raises OSError, and ArrowInvalid for an invalid
    Parquet file."""
    footer = pq.read_metadata(folder / path)
    found: dict[str, tuple[int, int]] = {}
    for group in range(footer.num_row_groups):
        for place in range(footer.num_columns):
            chunk = footer.row_group(group).column(place)
            name = chunk.path_in_schema
            if name in columns and chunk.statistics is not None and chunk.statistics.has_min_max:
                low, high = int(chunk.statistics.min_raw), int(chunk.statistics.max_raw)
                before = found.get(name, (low, high))
                found[name] = (min(low, before[0]), max(high, before[1]))
    return DataFile(table, path, footer.num_rows, (folder / path).stat().st_size, found)
