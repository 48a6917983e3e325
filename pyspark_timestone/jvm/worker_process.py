"""Orderly end of a Python worker that Spark keeps for its next task. Knows no data. Does nothing in other processes.

Java closes the socket of a worker when the session ends, when a query has all the rows that it wants (`limit`,
`first`), and after a minute without work. Spark's worker treats that as an error, which it tries to report to the
Java that has gone; when that fails too, the daemon prints a traceback. Nothing is lost then."""

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

_Work = ParamSpec("_Work")
_Class = TypeVar("_Class", bound=type)
_SPARKS, _OURS = "pyspark.daemon", "pyspark_timestone.daemon"


def is_worker_process() -> bool:
    """Return whether this process is a worker of Spark."""
    return _program() in (_SPARKS, _OURS)


def quietly(worker: Callable[_Work, int]) -> Callable[_Work, int]:
    """Wrap the function `worker` of Spark's daemon so that a connection closed by Java is not an error. All other
    errors have been reported to Java before this sees them. The daemon calls it for a task, and again to wait for
    the next; a result other than 0 ends the process."""

    @functools.wraps(worker)
    def work(*socket: _Work.args, **named: _Work.kwargs) -> int:
        try:
            return worker(*socket, **named)
        except ConnectionError:
            return 1

    return work


@functools.cache
def end_quietly() -> None:
    """Make this worker end silently when Java closes the connection after this task; once. In a process of our own
    daemon it would anyway, and during the first task as well."""
    if _program() == _SPARKS:
        daemon = sys.modules["__main__"]
        daemon.worker = quietly(daemon.worker)  # type: ignore[attr-defined]


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Make Spark pass on an error of the source raised in the block as its message alone.

    Spark's workers send the frames of a traceback with it, which says nothing to the one who gave a wrong option. A
    worker ends with its first error, so that the variable hides no frames of another one."""
    try:
        yield
    except Exception as error:
        ours = type(error).__module__.startswith(("pyspark_timestone.", "timestone."))
        if (ours or isinstance(error, OSError)) and (_program() or "").startswith("pyspark"):
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def with_errors_in_one_line(kind: _Class) -> _Class:
    """Decorate a class that Spark calls: `errors_in_one_line` for each of its public methods."""
    for name, method in list(vars(kind).items()):
        if callable(method) and (not name.startswith("_") or name == "__init__"):
            setattr(kind, name, errors_in_one_line()(method))
    return kind


def _program() -> str | None:
    main = sys.modules["__main__"].__spec__
    return None if main is None else main.name
