"""Dead letters of `badRecords=dlq`: Parquet files, one for each task that has bad records.

A file is named for the log and the offsets of its task. A task that runs again writes the same file again, so each bad
record is there once as long as the folder belongs to one query."""

import contextlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_timestone.offsets import OffsetRange
from timestone.disk import access
from timestone.disk.files import Files
from timestone.reading.arrow import SCHEMA, columns
from timestone.reading.batch import Batch

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_NAMES = ("log", "partition", "offset", "timestamp", "topic", "value")
_SCHEMA = pa.schema(
    [*(SCHEMA.field(name) for name in _NAMES), pa.field("reason", pa.string(), nullable=False)]
)


class DeadLetters:
    """Bad records of one task. They are written as they arrive: all records of a task may be bad."""

    def __init__(self, folder: Path, task: OffsetRange) -> None:
        self._path = folder / str(task.log) / f"{task.start:020}-{task.end:020}.parquet"
        # Hidden from Spark and other readers of folders until it is complete.
        self._unfinished = self._path.with_name(f".{self._path.name}.{secrets.token_hex(8)}")
        self._writer: pq.ParquetWriter | None = None

    def add(self, batch: Batch, bad: Mapping[int, str]) -> None:
        """Take the bad records of a batch, by their numbers in it, with the reasons. Raises OSError."""
        if self._writer is None:
            # Importing it takes as long as all of the source, in each worker, and it is rarely needed.
            import pyarrow.parquet as pq  # noqa: PLC0415

            Files().make_directories(self._path.parent)
            access.ensure_file(self._unfinished)
            self._writer = pq.ParquetWriter(self._unfinished, _SCHEMA)
        made = columns(batch)
        numbers = pa.array(list(bad))
        arrays = [made[name]().take(numbers) for name in _NAMES]
        self._writer.write_batch(pa.record_batch([*arrays, pa.array(list(bad.values()))], schema=_SCHEMA))

    def write(self) -> None:
        """Make the file, if there is anything for it. It is on the disk when this returns. Raises OSError."""
        if self._writer is None:
            return
        self._writer.close()
        with self._unfinished.open("rb") as written:
            os.fsync(written.fileno())
        self._unfinished.rename(self._path)
        Files().sync_directory(self._path.parent)
        self._writer = None

    def discard(self) -> None:
        """Discard an incomplete file: the task has failed, or its remaining rows are not wanted."""
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()  # which writes once more: on a full disk that fails again
            self._unfinished.unlink(missing_ok=True)
            self._writer = None
