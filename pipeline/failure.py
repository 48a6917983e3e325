"""Spark's errors in one line.

Spark carries the error of a source or of a `foreachBatch` as the text of a traceback, inside of others.
"""

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
"""What an error of a `foreachBatch` has to say for Spark to take it as the end of a query that was stopped.

Spark finds that with a pattern that takes a place on Java's stack for each character in between: on the error that
Spark itself raises in a batch that is interrupted, Java's stack and all, the thread of the query ends in a
StackOverflowError, a thousand lines of it on standard error."""

_RAISED = re.compile(r"^(?:Caused by: )?[\w.$]*(?:Error|Exception): (.+)$", re.MULTILINE)
_STOPPED = re.compile(r"terminated with exception: (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_OTHER_TYPE = re.compile(
    r"PARQUET_COLUMN_DATA_TYPE_MISMATCH\] .*/_files/(\w+)/.* column \[(.+?)\]\."
    r" Expected Spark type (.+?), actual Parquet type (.+?)\.(?: |$)",
    re.MULTILINE,
)
"""A file that was written before the type of a field was changed, in the error of whoever reads it now."""
_JAVA_IS_GONE = "Spark's Java has ended: it was killed, or there was too little memory"
_OURS = ("pyspark_timestone.errors.", "timestone_pipeline.errors.", "timestone.errors.")


def silence_java() -> None:
    """For a program of its own: that Java is gone comes as an error, and each part of PySpark that talks to it would
    print a traceback besides."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    # py4j again; what other loggers say does not come by here.
    logging.getLogger().addFilter(lambda record: False)
    for server in (AccumulatorTCPServer, AccumulatorUnixServer):
        server.handle_error = lambda *about: None  # type: ignore[method-assign]


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """What Spark raises inside, as QueryFailed."""
    try:
        yield
    except SPARK_ERRORS as error:
        raise in_one_line(error) from error


def in_one_line(error: BaseException) -> PipelineError:
    """The innermost reason that can be told from the text."""
    text = str(error)
    # Bare of any answer, the last is what py4j makes of a connection that breaks while it waits for one.
    if isinstance(error, ConnectionError | Py4JNetworkError) or (
        type(error) is Py4JError and "Trace:" not in text
    ):
        return QueryFailed(_JAVA_IS_GONE)
    for line in reversed(text.splitlines()):
        for package in _OURS:
            if line.strip().startswith(package):
                return QueryFailed(line.strip().removeprefix(package).partition(": ")[2])
    if (other := _OTHER_TYPE.search(text)) is not None:
        table, column, now, before = other.groups()
        return QueryFailed(
            f"table {table}: column {column!r} is {before} in its files and {now} in the settings; give tables.path"
            " another folder, and the tables are made again from the log"
        )
    said = _RAISED.findall(text) or _STOPPED.findall(text) or [text]
    reason = said[-1]
    return QueryFailed(f"Spark gave up: {' '.join(reason.split())[:500]}")
