"""Background threads of a store that each serve one log after the other: the flusher and the sealer."""

import logging
import queue
import threading
from collections.abc import Callable

from timestone.commit.log_commit import LogCommit
from timestone.disk.signal_safe_event import SignalSafeEvent
from timestone.kernel import loops

_LOGGER = logging.getLogger("timestone")


class LogThread:
    """Thread that serves logs in the order of `put`, until `stop`. A daemon: a program that exits without closing its
    store still reaches the exit handler, which closes it."""

    def __init__(self, name: str, serve: Callable[[LogCommit], None]) -> None:
        """serve: called by the thread. It handles its own errors: one that it raises ends the thread."""
        self._serve = serve
        self._logs: queue.SimpleQueue[LogCommit | SignalSafeEvent | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, log: LogCommit) -> None:
        """Serve this log after those before it."""
        self._logs.put(log)

    def settle(self) -> None:
        """Wait until every log of an earlier `put` has been served."""
        served = SignalSafeEvent()  # KeyboardInterrupt could leave the lock of a threading.Event locked
        self._logs.put(served)
        served.wait()

    def stop(self) -> None:
        """Serve the waiting logs and end the thread."""
        self._logs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (log := self._logs.get()) is not None:
            if isinstance(log, SignalSafeEvent):
                log.set()
            else:
                self._serve(log)


class Flusher(LogThread):
    """Flushes logs that no caller waits for, so that the committer can write at the same time."""

    def __init__(self, unflushed: Callable[[LogCommit], None]) -> None:
        """unflushed: called with a log that was written to during its flush."""
        self._unflushed = unflushed
        self._expected: set[LogCommit] = set()
        super().__init__("timestone-flusher", self._flush)

    def expect(self, log: LogCommit) -> None:
        """Schedule a flush of a log. One caller at a time."""
        if log not in self._expected:
            self._expected.add(log)
            self.put(log)

    def _flush(self, log: LogCommit) -> None:
        try:
            log.sync_queued()
        except Exception:
            _LOGGER.exception("%s: flush failed", log.log)
        finally:
            self._expected.discard(log)
        if log.dirty:  # read after the log is no longer expected, so that an earlier call is not missed
            self._unflushed(log)
        else:
            loops.drop_spare()  # the log is idle: release the memory of its batches


class Sealer(LogThread):
    """Seals rolled segments, so that no append waits for the flush of a whole segment. `put` a log that has one."""

    def __init__(self) -> None:
        super().__init__("timestone-sealer", _seal)


def _seal(log: LogCommit) -> None:
    try:
        log.seal_rolled()
    except OSError as error:
        # Nothing is lost: the segment stays unclosed and is sealed with the next roll or by the next open.
        _LOGGER.error("%s: a segment could not be sealed: %s", log.log, error)
    except Exception as error:
        _LOGGER.error("%s: sealing stopped: %s", log.log, error)
