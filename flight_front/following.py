"""Following a log: a stream that waits at the end without polling, and continues when records are visible."""

import asyncio
from collections.abc import Callable

from flight_front.calls import Calls
from flight_front.reading import RecordStream, durable_offset
from timestone.log import Log


class Follower:
    """Wait for records that a stream has not read. Event-loop thread only. A waiting one costs a future and a parked
    reader."""

    def __init__(self, stream: RecordStream, log: Log, calls: Calls, *, synced: bool) -> None:
        """synced: show durable records only."""
        self.stream = stream
        self._log = log
        self._calls = calls
        self._synced = synced
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        stream.reader.on_wake = lambda _reader, _first: self._wake()

    @property
    def visible(self) -> int:
        """Return the offset in front of which records may be sent now."""
        return durable_offset(self._log) if self._synced else self._log.end_offset

    async def wait(self) -> None:
        """Return when a record is visible that was not read, or when `nudge` was called. Raises CallRefused when the
        server stops."""
        while self.stream.reader.offset >= self.visible:
            self._woken.clear()
            log = self._log
            self._calls.check_running()
            if self.stream.reader.offset < log.end_offset:
                log.when_synced(log.end_offset, self._wake)
            elif not self.stream.reader.park():
                continue
            with self._calls.woken_at_stop(self._woken):
                await self._woken.wait()

    async def next(self, end: int | None = None, *, noted: bool = False) -> bytes:
        """Return the next message; empty if nothing matched."""
        bound = self.visible if end is None else end
        if self.stream.at_hand:
            return self.stream.read(bound, noted=noted) or b""
        return await self._calls.in_thread(_read, self.stream.read, bound, noted) or b""

    def _wake(self, _error: Exception | None = None) -> None:
        """Wake the loop; called by any thread."""
        try:
            self._loop.call_soon_threadsafe(self._woken.set)
        except RuntimeError:
            pass  # the loop has ended


def _read(read: Callable[..., bytes | None], bound: int, noted: bool) -> bytes | None:
    return read(bound, noted=noted)
