"""Errors of Spark in one line. Spark passes on the error of a source or of a `foreachBatch` as the text of a traceback,
nested in others."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer
from pyspark.errors import PySparkException

from .errors import PipelineError, QueryFailed

SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError)

STOPPED = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling a batch: java.lang.InterruptedException"
)
"""Text in an error of a `foreachBatch` by which Spark recognises a query that was stopped.

Spark searches for it with a pattern that takes a place on Java's stack for each character before it: on the error that
Spark raises in an interrupted batch, Java's stack included, the thread of the query ends in a StackOverflowError with a
thousand lines on standard error."""

_RAISED = re.compile(r"^(?:Caused by: )?[\w.$]*(?:Error|Exception): (.+)$", re.MULTILINE)
_STOPPED = re.compile(r"terminated with exception: (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_OTHER_TYPE = re.compile(
    r"PARQUET_COLUMN_DATA_TYPE_MISMATCH\] .*/(\w+)/(?:\w+=[^/]*/)?[^/]*\.parquet.* column \[(.+?)\]\."
    r" Expected Spark type (.+?), actual Parquet type (.+?)\.(?: |$)",
    re.MULTILINE,
)
"""Part of the error of reading a file that was written before the type of a field was changed."""
_JAVA_IS_GONE = "Spark's Java has ended: it was killed, or there was too little memory"
_OURS = re.compile(
    r"\b(?:pyspark_timestone|timestone_pipeline|timestone_tiering|timestone)\.errors\.\w+: (.+)"
)


def silence_java() -> None:
    """Silence loggers about a lost connection to Java: the loss is reported as an error, and each part of PySpark that
    talks to Java would print a traceback besides. For a program of its own."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    # py4j again; messages of other loggers do not pass here.
    logging.getLogger().addFilter(lambda record: False)
    for server in (AccumulatorTCPServer, AccumulatorUnixServer):
        server.handle_error = lambda *about: None  # type: ignore[method-assign]


@contextmanager
def spark_errors_in_one_line() -> Iterator[None]:
    """Convert errors of Spark in the block to QueryFailed."""
    try:
        yield
    except SPARK_ERRORS as error:
        raise in_one_line(error) from error


def in_one_line(error: BaseException) -> PipelineError:
    """Return the innermost reason in the text of an error."""
    text = str(error)
    # Without a message, the last is what py4j raises for a connection that breaks while it waits.
    if isinstance(error, ConnectionError | Py4JNetworkError) or (
        type(error) is Py4JError and "Trace:" not in text
    ):
        return QueryFailed(_JAVA_IS_GONE)
    if ours := _OURS.findall(text):
        return QueryFailed(ours[-1])
    if (other := _OTHER_TYPE.search(text)) is not None:
        table, column, now, before = other.groups()
        return QueryFailed(
            f"table {table}: column {column!r} is {before} in its files and {now} in the settings; give tables.path"
            " another folder, and the tables are made again from the log"
        )
    said = _RAISED.findall(text) or _STOPPED.findall(text) or [text]
    reason = said[-1]
    return QueryFailed(f"Spark gave up: {' '.join(reason.split())[:500]}")
