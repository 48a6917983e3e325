"""A slower source: between Spark's first two calls there is always time for a record to arrive."""

import time
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

import timestone
from pyspark_timestone import DefaultSource
from pyspark_timestone.options.read_options import read_options
from pyspark_timestone.reading.admission_control import LimitedStreamReader
from tests.support.stores import LOG

PATIENCE_S = 300


class SlowSource(DefaultSource):
    """`format("timestone-slow")`."""

    @classmethod
    def name(cls) -> str:
        return "timestone-slow"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return SlowReader(read_options(self.options, streaming=True), schema)


class SlowReader(LimitedStreamReader):
    """Returns the start of a query only after the log has grown beyond it."""

    def initialOffset(self) -> dict[str, Any]:
        answer = super().initialOffset()
        deadline = time.monotonic() + PATIENCE_S
        with timestone.view(str(self._options.source)) as store:
            log = store.log(LOG)
            while log.synced_offset <= answer[LOG]["0"]:
                assert time.monotonic() < deadline, "no process appends"
                log.refresh()
        return answer
