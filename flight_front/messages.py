"""Messages of a client in a stream, read one at a time, with a limit of how long the client may be silent."""

import asyncio
from contextlib import suppress
from typing import Any

from flight_front.calls import Calls
from flight_front.errors import CallRefused, Code, InvalidRequest

HALF_CLOSE_S = 2.0
"""How long a login that is answered waits for the client to end its side. Some clients wait for the server first."""


async def half_closed(context: Any) -> None:
    """Return when the client has ended its side of a login, or after a while. A client that finds the call ended when
    it ends its side takes that for the error: pyarrow raises an internal one in the place of the status."""
    with suppress(TimeoutError):
        async with asyncio.timeout(HALF_CLOSE_S):
            while isinstance(await context.read(), bytes):
                pass


class ClientMessages:
    """Messages of one call."""

    def __init__(self, context: Any, calls: Calls, idle_ms: int | None) -> None:
        """idle_ms: how long the client may be silent; None: any time."""
        self._context = context
        self._calls = calls
        self._idle_ms = idle_ms

    async def first(self) -> bytes:
        """Return the first message. Raises CallRefused."""
        message = await self.next()
        if message is None:
            raise InvalidRequest("invalid stream: expected a message with a descriptor, got none")
        return bytes(message)

    async def next(self) -> bytes | memoryview | None:
        """Return the next message, None at the end. Raises CallRefused for a silent client, and when the server
        stops."""
        stop = asyncio.Event()
        reading, stopped = asyncio.ensure_future(self._context.read()), asyncio.ensure_future(stop.wait())
        try:
            with self._calls.woken_at_stop(stop):
                self._calls.check_running()
                limit_s = None if self._idle_ms is None else self._idle_ms / 1000
                done, _ = await asyncio.wait(
                    (reading, stopped), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED
                )
            if reading in done:
                message = reading.result()
                return message if isinstance(message, bytes | memoryview) else None
            self._calls.check_running()
            self._calls.counts.idle_ended += 1
            raise CallRefused(
                Code.DEADLINE_EXCEEDED, f"the stream was silent for {self._idle_ms} ms, limit put_idle_ms"
            )
        finally:
            stopped.cancel()
            reading.cancel()
