"""Group commit: the one thread that writes and flushes for those who do not wait on the disk themselves.

While one fdatasync runs, the next batches gather; each flush serves everybody who was written before it began, and
waits a little for those who are about to come (`FlushGroups`). A flush that nobody waits for is the flusher's, and
writing continues. The thread sleeps without a timer while everything is durable; after a write below level `synced` it
wakes once, `sync_interval_ms` later."""

import logging
import threading
import time

from timestone.commit.background_flush import Flusher
from timestone.commit.log_commit import LogCommit

_LOGGER = logging.getLogger("timestone")


class Committer:
    """Writes and flushes the logs of a store."""

    def __init__(self, sync_interval_ms: int) -> None:
        self._interval_s = sync_interval_ms / 1000
        self._flusher = Flusher(self.expect_sync)
        # Callers take the lock itself: a Ctrl-C inside of the condition's own code would leave it taken permanently.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._to_write: dict[LogCommit, None] = {}
        self._deadlines: dict[LogCommit, float] = {}
        self._gathering: LogCommit | None = None
        """Whose next flush waits for more."""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="timestone-committer", daemon=True)
        self._thread.start()

    def expect_write(self, log: LogCommit) -> None:
        """The log has submissions in its queue, or written ones that wait for a flush."""
        with self._lock:
            self._to_write[log] = None
            if log is not self._gathering or not log.gathers:
                self._changed.notify()

    def expect_sync(self, log: LogCommit) -> None:
        """The log has written something nobody waits for: have it synced when the interval is over, or at
        once when a lot has gathered."""
        if log in self._deadlines and not log.sync_wanted:
            return
        with self._lock:
            self._deadlines.setdefault(log, time.monotonic() + self._interval_s)
            if log.sync_wanted:
                self._deadlines[log] = 0.0
            self._changed.notify()

    def stop(self) -> None:
        """Finish what is queued and end both threads."""
        with self._lock:
            self._stopping = True
            self._changed.notify()
        self._thread.join()
        self._flusher.stop()

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._to_write and not self._due() and not self._stopping:
                    self._changed.wait(self._until_due())
                writing, self._to_write = self._to_write, {}
                due = self._due()
                for log in due:
                    del self._deadlines[log]
                if self._stopping and not writing and not due:
                    return
            logs = {**writing, **dict.fromkeys(due)}
            for log in logs:
                try:
                    self._serve(log, flush=log in due, alone=len(logs) == 1)
                except Exception:
                    # What failed was told to whoever submitted it; the other logs of the store are still
                    # served.
                    _LOGGER.exception("%s: the committer could not serve it", log.log)

    def _serve(self, log: LogCommit, *, flush: bool, alone: bool) -> None:
        log.write_queued()
        if alone and log.awaited:
            self._gather(log)
        if log.awaited or log.sync_overdue:
            # The second: the disk takes less than comes. Waiting bounds what is written and not durable.
            log.sync_queued()
            if alone:
                # Now already, so that who was answered wakes this thread once, and not with its first message.
                self._gather(log)
        elif flush or log.sync_wanted:
            self._flusher.expect(log)
        elif log.dirty:
            self.expect_sync(log)

    def _gather(self, log: LogCommit) -> None:
        """Wait for what the next flush of a log should carry, but not while another log has something to write."""
        with self._lock:
            if log.gathers and not self._stopping and not self._to_write.keys() - {log}:
                self._gathering = log
                self._changed.wait(log.delay.patience_s)
                self._gathering = None
        log.write_queued()

    def _due(self) -> list[LogCommit]:
        now = time.monotonic()
        return [log for log, deadline in self._deadlines.items() if deadline <= now]

    def _until_due(self) -> float | None:
        if not self._deadlines:
            return None
        wait_s = min(self._deadlines.values()) - time.monotonic()
        return min(max(0.0, wait_s), threading.TIMEOUT_MAX)
