"""The thread that flushes what no caller waits for, so that the committer can write at the same time."""

import logging
from collections.abc import Callable

from timestone.commit.log_commit import LogCommit
from timestone.commit.log_thread import LogThread
from timestone.kernel import loops

_LOGGER = logging.getLogger("timestone")


class Flusher:
    """Flushes in the background, one log at a time."""

    def __init__(self, left: Callable[[LogCommit], None]) -> None:
        """`left` is told of a log with records that came while it was flushed."""
        self._left = left
        self._expected: set[LogCommit] = set()
        self._thread = LogThread("timestone-flusher", self._flush)

    def expect(self, log: LogCommit) -> None:
        """The log has written something that is to be durable soon. One caller at a time."""
        if log not in self._expected:
            self._expected.add(log)
            self._thread.put(log)

    def stop(self) -> None:
        """Flush what is waiting and end the thread."""
        self._thread.stop()

    def _flush(self, log: LogCommit) -> None:
        try:
            log.sync_queued()
        except Exception:
            _LOGGER.exception("%s: it could not be flushed", log.log)
        finally:
            self._expected.discard(log)
        if log.dirty:  # read after the log is no longer expected, so that an earlier call is not missed
            self._left(log)
        else:
            loops.drop_spare()  # the log is idle: release the memory of its batches
