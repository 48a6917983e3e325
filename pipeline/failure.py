"""Spark's errors in one line.

Spark carries the error of a source or of a `foreachBatch` as the text of a traceback, inside of others.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from .errors import PipelineError, QueryFailed

SPARK_ERRORS = (PySparkException, Py4JError)

STOPPED = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling a batch: java.lang.InterruptedException"
)
"""What an error of a `foreachBatch` has to say for Spark to take it as the end of a query that was stopped.

Spark finds that with a pattern that takes a place on Java's stack for each character in between: on the error that
Spark itself raises in a batch that is interrupted, Java's stack and all, the thread of the query ends in a
StackOverflowError, a thousand lines of it on standard error."""

_RAISED = re.compile(r"^(?:Caused by: )?[\w.$]*(?:Error|Exception): (.+)$", re.MULTILINE)
_STOPPED = re.compile(r"terminated with exception: (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_OURS = ("pyspark_timestone.errors.", "timestone_pipeline.errors.", "timestone.errors.")


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
    for line in reversed(text.splitlines()):
        for package in _OURS:
            if line.strip().startswith(package):
                return QueryFailed(line.strip().removeprefix(package).partition(": ")[2])
    said = _RAISED.findall(text) or _STOPPED.findall(text) or [text]
    reason = said[-1]
    return QueryFailed(f"Spark gave up: {' '.join(reason.split())[:500]}")
