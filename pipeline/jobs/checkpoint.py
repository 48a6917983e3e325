"""Records of a batch according to Spark's checkpoint, which Spark writes before it runs the batch.

A batch may be run again, and a checkpoint may be deleted or restored from a copy. The tables decide which records are
done; this module compares a batch with them."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark_timestone.errors import SparkSourceError
from pyspark_timestone.offsets import LogPartition, SourceOffset

from ..errors import TablesBehind


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """Planned batch."""

    end: SourceOffset
    starts: Mapping[LogPartition, int]
    """First offsets, in the partitions of which it has records."""

    def done(self, tables: SourceOffset) -> bool:
        """Return whether the tables have all of it."""
        return all(self.end.positions[key] <= tables.positions.get(key, 0) for key in self.starts)

    def overlaps(self, tables: SourceOffset) -> list[LogPartition]:
        """Return the partitions of which the tables have a part of it."""
        return [key for key, start in self.starts.items() if start < tables.positions.get(key, start)]

    def count_after(self, tables: SourceOffset) -> int:
        """Return how many of its offsets the tables do not have yet."""
        begins = {key: max(start, tables.positions.get(key, 0)) for key, start in self.starts.items()}
        return sum(max(0, self.end.positions[key] - begin) for key, begin in begins.items())

    def check_follows(self, tables: SourceOffset, *, fail_on_data_loss: bool) -> None:
        """Raise TablesBehind if the tables lack records before this batch, or have those of another log."""
        for key, start in self.starts.items():
            here, there = self.end.origins.get(key), tables.origins.get(key)
            if here is not None and there is not None and here.log_id != there.log_id:
                raise TablesBehind(
                    f"{key} was deleted and created again (id {there.log_id:016x} in the tables, "
                    f"{here.log_id:016x} now); its records belong into tables of their own: "
                    "set tables.path to another folder"
                )
            reached = tables.positions.get(key)
            if reached is not None and start > reached and fail_on_data_loss:
                raise TablesBehind(
                    f"{key}: the tables have all records before offset {reached}, and the checkpoint continues at"
                    f" {start}; delete _checkpoint in the folder of the tables to read those between them again"
                )

    def united(self, tables: SourceOffset) -> SourceOffset:
        """Return the offsets of the tables with this batch added."""
        reached = {
            key: max(position, tables.positions.get(key, 0)) for key, position in self.end.positions.items()
        }
        return SourceOffset({**tables.positions, **reached}, {**tables.origins, **self.end.origins})


def batch_span(checkpoint: Path, number: int) -> BatchSpan:
    """Return the records of batch `number`. Raises TablesBehind if the checkpoint does not state them in a known
    format."""
    end = _written(checkpoint, number)
    before = _written(checkpoint, number - 1) if number else SourceOffset({})
    return BatchSpan(end, {one.log: one.start for one in end.ranges_since(before)})


def has_batches(checkpoint: Path) -> bool:
    """Return whether a query has planned batches in this checkpoint."""
    return (checkpoint / "offsets" / "0").exists() or any((checkpoint / "offsets").glob("[0-9]*"))


def clear_unplanned(checkpoint: Path) -> None:
    """Delete what a query has left that ended while it wrote its first batch: Spark refuses to plan that again in a
    folder with a temporary file."""
    if not has_batches(checkpoint):
        shutil.rmtree(checkpoint / "offsets", ignore_errors=True)


def _written(checkpoint: Path, number: int) -> SourceOffset:
    path = checkpoint / "offsets" / str(number)
    try:
        # A version, a line of settings, then a line for each source, of which there is one.
        return SourceOffset.from_json(json.loads(path.read_text("utf-8").splitlines()[2]))
    except (OSError, ValueError, IndexError, RecursionError, SparkSourceError) as error:
        raise TablesBehind(f"{path} does not state the records of the batch: {error}") from None
