"""Where bad records go with `badRecords=dlq`: Parquet files, one for each task that met some.

A file is named for the log and the offsets of its task. A task that runs again writes the same file again, so each bad
record is there once as long as the folder belongs to one query."""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from pyspark_timestone.offsets import OffsetRange
from timestone.arrow import SCHEMA, columns
from timestone.batch import Batch

_NAMES = ("log", "partition", "offset", "timestamp", "topic", "value")
_SCHEMA = pa.schema(
    [*(SCHEMA.field(name) for name in _NAMES), pa.field("reason", pa.string(), nullable=False)]
)


class DeadLetters:
    """The bad records of one task."""

    def __init__(self, folder: Path, task: OffsetRange) -> None:
        self._path = folder / str(task.log) / f"{task.start:020}-{task.end:020}.parquet"
        self._batches: list[pa.RecordBatch] = []

    def add(self, batch: Batch, bad: Mapping[int, str]) -> None:
        """Take the bad records of a batch, by their numbers in it, with the reasons."""
        made = columns(batch)
        numbers = pa.array(list(bad))
        arrays = [made[name]().take(numbers) for name in _NAMES]
        self._batches.append(pa.record_batch([*arrays, pa.array(list(bad.values()))], schema=_SCHEMA))

    def write(self) -> None:
        """Make the file, if there is anything for it; it is there whole or not at all. Raises OSError."""
        if not self._batches:
            return
        # Takes as long to import as all of the source, in each worker, and is hardly ever needed.
        import pyarrow.parquet as pq  # noqa: PLC0415

        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Hidden from Spark and from other readers of folders until it is whole.
        unfinished = self._path.with_name(f".{self._path.name}.{secrets.token_hex(8)}")
        pq.write_table(pa.Table.from_batches(self._batches), unfinished)
        with unfinished.open("rb") as written:
            os.fsync(written.fileno())
        unfinished.rename(self._path)
