"""The source in processes that kill themselves once: the worker of a task, or the process that plans a stream. A file
in the store marks that it has happened."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from pyspark_timestone import DefaultSource
from pyspark_timestone.options.read_options import read_options
from pyspark_timestone.reading.admission_control import LimitedStreamReader
from pyspark_timestone.reading.batch_reader import TimestoneReader

MARK = "died"


def die_once(store: Path) -> None:
    mark = store / MARK
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


class DyingSource(DefaultSource):
    """`format("timestone-dying")`."""

    @classmethod
    def name(cls) -> str:
        return "timestone-dying"

    def reader(self, schema: StructType) -> DataSourceReader:
        return DyingReader(read_options(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return DyingStreamReader(read_options(self.options, streaming=True), schema)


class DyingReader(TimestoneReader):
    """Dies during a task."""

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        for batch in super().read(partition):
            yield batch.slice(0, 1)
            die_once(Path(str(self._options.source)))
            yield batch.slice(1)


class DyingStreamReader(LimitedStreamReader):
    """Dies when it is asked for the end of a batch that is not the first."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if start != self.initialOffset():
            die_once(Path(str(self._options.source)))
        return super().latestOffset(start, limit)
