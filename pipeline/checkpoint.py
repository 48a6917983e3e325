"""Which records a batch has, read from Spark's checkpoint: Spark writes that down before it runs the batch.

A batch that was run before may be run again, a checkpoint may be deleted or copied back. What counts is which records
the tables have; here a batch is compared with that.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark_timestone.errors import SparkSourceError
from pyspark_timestone.offsets import LogPartition, SourceOffset

from .errors import TablesBehind


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """A batch as it was planned."""

    end: SourceOffset
    starts: Mapping[LogPartition, int]
    """Where it begins, in the partitions of which it has records."""

    def done(self, tables: SourceOffset) -> bool:
        """Do the tables have all of it?"""
        return all(self.end.positions[key] <= tables.positions.get(key, 0) for key in self.starts)

    def overlaps(self, tables: SourceOffset) -> list[LogPartition]:
        """The partitions of which the tables have some of it already."""
        return [key for key, start in self.starts.items() if start < tables.positions.get(key, start)]

    def check_follows(self, tables: SourceOffset, *, fail_on_data_loss: bool) -> None:
        """Raise TablesBehind when the tables lack records that come before this batch, or have another log's."""
        for key, start in self.starts.items():
            here, there = self.end.origins.get(key), tables.origins.get(key)
            if here is not None and there is not None and here.log_id != there.log_id:
                raise TablesBehind(
                    f"{key} was deleted and made again (id {there.log_id:016x} in the tables, {here.log_id:016x} now);"
                    " its records belong into tables of their own: set tables.path to another folder"
                )
            reached = tables.positions.get(key)
            if reached is not None and start > reached and fail_on_data_loss:
                raise TablesBehind(
                    f"{key}: the tables have all records before offset {reached}, and the checkpoint continues at"
                    f" {start}; delete _checkpoint in the folder of the tables to read those between them again"
                )

    def united(self, tables: SourceOffset) -> SourceOffset:
        """How far the tables are with this batch added."""
        reached = {
            key: max(position, tables.positions.get(key, 0)) for key, position in self.end.positions.items()
        }
        return SourceOffset({**tables.positions, **reached}, {**tables.origins, **self.end.origins})


def batch_span(checkpoint: Path, number: int) -> BatchSpan:
    """What batch `number` reads. Raises TablesBehind when the checkpoint does not say it in a way we understand."""
    end = _written(checkpoint, number)
    before = _written(checkpoint, number - 1) if number else SourceOffset({})
    return BatchSpan(end, {one.log: one.start for one in end.ranges_since(before)})


def has_batches(checkpoint: Path) -> bool:
    """Has a query been planned here before?"""
    return (checkpoint / "offsets" / "0").exists() or any((checkpoint / "offsets").glob("[0-9]*"))


def _written(checkpoint: Path, number: int) -> SourceOffset:
    path = checkpoint / "offsets" / str(number)
    try:
        # A version, a line of settings, then a line for each source; there is one.
        return SourceOffset.from_json(json.loads(path.read_text("utf-8").splitlines()[2]))
    except (OSError, ValueError, IndexError, RecursionError, SparkSourceError) as error:
        raise TablesBehind(f"{path} does not say which records the batch has: {error}") from None
