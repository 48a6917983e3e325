"""Rows of a task by the log that they go to: one log for all of them, or with `layout=kafka` the log named in each row.
Knows Arrow, no stores."""

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row

from pyspark_timestone.errors import InvalidRow
from pyspark_timestone.offsets import LogPartition
from timestone.errors import InvalidName
from timestone.format.names import validate_target

_BATCH_ROWS = 10_000
"""Of a batch made of rows: as many as Spark puts into one."""

_KAFKA_RECORD = ("key", "value", "headers")
"""What becomes of a row of Kafka's layout in its log; `topic` and `partition` say which log that is."""


class Rows(NamedTuple):
    """Some rows of a task."""

    log: LogPartition
    batch: pa.RecordBatch
    numbers: npt.NDArray[np.int64]
    """Number of each in its task, from 0 on."""

    def slice(self, first: int, count: int | None = None) -> "Rows":
        """Return some of them."""
        return Rows(self.log, self.batch.slice(first, count), self.numbers[first:][:count])

    def misfit(self, number: int, reason: str) -> InvalidRow:
        """Return the error for one of them, which names its place in the task."""
        return InvalidRow(f"row {self.numbers[number]} of the task (the first is 0): {reason}")


def batches_of_rows(rows: Iterable[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows that Spark 4.0 hands over as the Arrow batches that later versions make of them."""
    waiting = iter(rows)
    while some := list(itertools.islice(waiting, _BATCH_ROWS)):
        yield pa.RecordBatch.from_pylist([row.asDict(recursive=True) for row in some], schema=schema)


def rows_by_log(
    batches: Iterable[pa.RecordBatch], log: str | None, partition: int, *, kafka_layout: bool
) -> Iterator[Rows]:
    """Yield the rows, those of one log in order. log: of all rows; None for the column `topic` of Kafka's layout, which
    also has the column `partition` that goes before the argument. Raises InvalidRow."""
    first = 0
    for batch in batches:
        numbers = np.arange(first, first + batch.num_rows)
        first += batch.num_rows
        if not kafka_layout:
            assert log is not None
            yield Rows(LogPartition(log, partition), batch, numbers)
        elif batch.num_rows:
            yield from _split(batch, numbers, log, partition)


def _split(
    batch: pa.RecordBatch, numbers: npt.NDArray[np.int64], log: str | None, partition: int
) -> Iterator[Rows]:
    names = pc.dictionary_encode(batch.column("topic") if log is None else pa.repeat(log, batch.num_rows))
    partitions = pa.repeat(partition, batch.num_rows)
    if "partition" in batch.schema.names:
        partitions = pc.fill_null(batch.column("partition"), partition)
    places = np.stack([np.asarray(pc.fill_null(names.indices, -1)), np.asarray(partitions)], axis=1)
    kinds, kind_of = np.unique(places, axis=0, return_inverse=True)
    batch = batch.select([name for name in _KAFKA_RECORD if name in batch.schema.names])
    for kind, (name, number) in enumerate(kinds.tolist()):
        chosen = np.flatnonzero(kind_of.reshape(-1) == kind)
        key = LogPartition("" if name < 0 else names.dictionary[name].as_py(), number)
        rows = Rows(key, batch if len(kinds) == 1 else batch.take(pa.array(chosen)), numbers[chosen])
        try:
            validate_target(*key)
        except InvalidName as error:
            reason = str(error) if name >= 0 else "it is null; the option topic can name one log for all rows"
            raise rows.misfit(0, f"column topic: {reason}") from None
        yield rows
