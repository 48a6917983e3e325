"""A Python process that Spark keeps for its next piece of work, and how it ends. Knows no data. Other processes are not
ours to do this to.

Java closes the socket of such a process when the session ends, when a query has all the rows that it wants (`limit`,
`first`), and after a minute without work. Spark's worker takes that for an error, which it has to tell to the very Java
that has gone; when that fails as well, the daemon prints a traceback. Nothing is lost then, and nobody needs to know.
"""

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec

_Work = ParamSpec("_Work")
_SPARKS, _OURS = "pyspark.daemon", "pyspark_timestone.daemon"


def is_worker_process() -> bool:
    """Is this one of Spark's?"""
    return _program() in (_SPARKS, _OURS)


def quietly(worker: Callable[_Work, int]) -> Callable[_Work, int]:
    """The function `worker` of Spark's daemon, for which it is no error that Java has hung up. Of all other errors Java
    has been told before this sees any.

    The daemon calls it for a piece of work, and again when that is done: there the process waits for the next one. Any
    result but 0 ends it.
    """

    @functools.wraps(worker)
    def work(*socket: _Work.args, **named: _Work.kwargs) -> int:
        try:
            return worker(*socket, **named)
        except ConnectionError:
            return 1

    return work


@functools.cache
def end_quietly() -> None:
    """Have this process end without a word when Java hangs up on it after this piece of work, if it is Spark's; once.

    In a process of our own daemon it would anyway, and during the first piece of work as well."""
    if _program() == _SPARKS:
        daemon = sys.modules["__main__"]
        daemon.worker = quietly(daemon.worker)  # type: ignore[attr-defined]


def _program() -> str | None:
    main = sys.modules["__main__"].__spec__
    return None if main is None else main.name
