"""Starts fronts on an open store, waits for a signal, stops them and closes the store.

Runs inside the event loop that `serve` makes; it must not know where settings come from.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence

from timestone.errors import TimestoneError
from timestone.front import Front
from timestone.store import Store

from .errors import CommandError

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_log = logging.getLogger("timestone.serve")


class Server:
    """Fronts on one store, from their start to the closed store."""

    def __init__(self, store: Store, fronts: Sequence[Front], *, stop_timeout_s: float) -> None:
        self._store = store
        self._fronts = fronts
        self._stop_timeout_s = stop_timeout_s
        self._stopping = asyncio.Event()

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until a signal. Calls `ready` when every front listens; closes the store, also when it raises.

        Raises CommandError when a front cannot start; those that did are stopped first.
        """
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._stop, number)
        started: list[Front] = []
        try:
            for front in self._fronts:
                await self._start(front)
                started.append(front)
            ready()
            await self._stopping.wait()
        finally:
            # Fronts first: they release what waits for the store, and nothing may append to a closed one.
            for front in reversed(started):
                await self._finish(front)
            # In a thread, because it syncs and seals: the second signal has to be heard meanwhile.
            await loop.run_in_executor(None, self._store.close)

    def _stop(self, number: int) -> None:
        if self._stopping.is_set():
            # No cleaning up: that is what did not end. What was acknowledged is as safe as after kill -9.
            print("stopped at once by the second signal", file=sys.stderr, flush=True)
            os._exit(128 + number)
        print(f"stopping ({signal.Signals(number).name}); a second signal stops at once", flush=True)
        self._stopping.set()

    async def _start(self, front: Front) -> None:
        try:
            await front.start()
        except (OSError, ValueError, TimestoneError) as error:
            raise CommandError(f"{front.name}: {getattr(error, 'strerror', None) or error}") from error

    async def _finish(self, front: Front) -> None:
        try:
            await asyncio.wait_for(front.stop(), self._stop_timeout_s)
        except TimeoutError:
            _log.warning(
                "the %s front did not stop within %g s and is abandoned", front.name, self._stop_timeout_s
            )
        except Exception:
            _log.exception("the %s front failed while stopping", front.name)
