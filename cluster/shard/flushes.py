"""Flushes of replicas beside an event loop: by threads that need no interpreter, of whose end a descriptor tells the
loop. Where a log has more to do than to flush, in a thread of Python."""

import asyncio
import functools
import os
from collections.abc import Callable

from timestone.commit.log_commit import BackgroundFlush
from timestone.errors import TimestoneError
from timestone.replication.replicated_log import ReplicatedLog

Ended = Callable[[int | Exception], None]
"""Called with the offset below which a log is durable, or the error of its flush."""


class Flushes:
    """Flushes of some logs, at most one of each at a time. Event-loop thread only."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._under_way: list[tuple[BackgroundFlush, ReplicatedLog, Ended]] = []
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._loop.add_reader(self._wake_fd, self._woken)

    def begin(self, log: ReplicatedLog, ended: Ended) -> None:
        """Flush what is written of a log."""
        try:
            background = log.begin_flush(self._wake_fd)
        except TimestoneError:
            background = None  # `sync` raises it, too
        if background is not None:
            self._under_way.append((background, log, ended))
        else:
            self._run(log.sync, ended)

    def close(self) -> None:
        """Wait for the flushes under way. The next call of a log takes note of its own."""
        self._loop.remove_reader(self._wake_fd)
        for background, _, _ in self._under_way:
            background.flush.wait()
        os.close(self._wake_fd)

    def _woken(self) -> None:
        os.eventfd_read(self._wake_fd)
        have_ended = [one for one in self._under_way if one[0].has_ended]
        self._under_way = [one for one in self._under_way if one not in have_ended]
        for background, log, ended in have_ended:
            if background.has_failed:  # what follows writes to the disk
                self._run(functools.partial(log.end_flush, background), ended)
            else:
                ended(_outcome(functools.partial(log.end_flush, background)))

    def _run(self, flush: Callable[[], int], ended: Ended) -> None:
        def done(outcome: asyncio.Future[int | Exception]) -> None:
            if not outcome.cancelled():
                ended(outcome.result())

        self._loop.run_in_executor(None, _outcome, flush).add_done_callback(done)


def _outcome(flush: Callable[[], int]) -> int | Exception:
    try:
        return flush()
    except Exception as error:
        return error
