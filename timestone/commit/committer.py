"""Thread of a store that writes submitted batches and flushes them for group commit.

While one fdatasync runs, the next batches collect. A flush covers every write before its start, and is delayed briefly
so that more appends share it (`CommitDelay`). A flush that no caller waits for runs in the thread of `Flusher`, so that
writing continues. While everything is durable the thread sleeps without a timer; after a write below level `synced` it
wakes once, after `sync_interval_ms`."""

import logging
import threading
import time

from timestone.commit.background import Flusher
from timestone.commit.log_commit import LogCommit

_LOGGER = logging.getLogger("timestone")


class Committer:
    """Committer thread of a store."""

    def __init__(self, sync_interval_ms: int) -> None:
        self._interval_s = sync_interval_ms / 1000
        self._flusher = Flusher(self.expect_sync)
        # Callers use the lock directly: KeyboardInterrupt inside Condition.__enter__ could leave it locked.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._to_write: dict[LogCommit, None] = {}
        self._deadlines: dict[LogCommit, float] = {}
        self._gathering: LogCommit | None = None
        """Log whose next flush is being delayed."""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="timestone-committer", daemon=True)
        self._thread.start()

    def expect_write(self, log: LogCommit) -> None:
        """Schedule a log with queued submissions, or with written ones that wait for a flush."""
        with self._lock:
            self._to_write[log] = None
            if log is not self._gathering or not log.gathers:
                self._changed.notify()

    def expect_sync(self, log: LogCommit) -> None:
        """Schedule a flush that no caller waits for: after the sync interval, or at once if much is unflushed."""
        if log.is_sync_expected and not log.sync_wanted:
            return
        with self._lock:
            self._deadlines.setdefault(log, time.monotonic() + self._interval_s)
            log.is_sync_expected = True
            if log.sync_wanted:
                self._deadlines[log] = 0.0
            self._changed.notify()

    def stop(self) -> None:
        """Write and flush everything queued and end both threads."""
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
                    log.is_sync_expected = False
                    del self._deadlines[log]
                if self._stopping and not writing and not due:
                    return
            logs = {**writing, **dict.fromkeys(due)}
            for log in logs:
                try:
                    self._serve(log, flush=log in due, alone=len(logs) == 1)
                except Exception:
                    # The submissions have the error; the other logs of the store are still served.
                    _LOGGER.exception("%s: the committer could not serve it", log.log)

    def _serve(self, log: LogCommit, *, flush: bool, alone: bool) -> None:
        log.write_queued()
        if alone and log.awaited:
            self._gather(log)
        if log.awaited or log.sync_overdue:
            # sync_overdue: the disk is slower than the appends. Waiting here bounds the unflushed bytes.
            log.sync_queued()
            if alone:
                # Delay now, so that acknowledged clients wake this thread once instead of with their first message.
                self._gather(log)
        elif flush or log.sync_wanted:
            self._flusher.expect(log)
        elif log.dirty:
            self.expect_sync(log)

    def _gather(self, log: LogCommit) -> None:
        """Wait for bytes that the next flush of a log should include, unless another log has something to write."""
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
