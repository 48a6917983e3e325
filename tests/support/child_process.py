"""A forked copy of the test that may die, be limited or be refused, and reports its observations."""

import os
import traceback
from collections.abc import Callable


def in_child(run: Callable[[int], None]) -> tuple[int, bytes]:
    """Run in a forked process that can report through the given descriptor; return its exit status and its report."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            run(writer)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        report = pipe.read()
    return os.waitpid(pid, 0)[1], report
