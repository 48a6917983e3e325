"""Reader of a stream whose options are wrong: raises the error when Spark first calls it.

The worker of Spark (4.0 to 4.3) stops its reader in a `finally` that also runs when `streamReader` has raised. The
name is not bound then, so the user gets an UnboundLocalError in place of the error that names the option."""

from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader

from pyspark_timestone.errors import SparkSourceError
from pyspark_timestone.jvm.worker_process import with_errors_in_one_line


@with_errors_in_one_line
class RefusedStreamReader(DataSourceStreamReader):
    """Reader that raises `error` at each call."""

    def __init__(self, error: SparkSourceError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:
        """Raise the error in the first call of a query without a checkpoint."""
        raise self._error

    def latestOffset(self, *_: Any) -> NoReturn:
        """Raise the error in the first call of a query with a checkpoint."""
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:
        """Raise the error in the first call of a query that repeats its last batch."""
        raise self._error

    def read(self, partition: Any) -> NoReturn:
        """Raise the error; never called, because there are no tasks."""
        raise self._error
