"""Starts services on an open store, waits for a signal, stops them and closes the store.

Runs inside the event loop that `serve` makes; it must not know where settings come from.
"""

import asyncio
import gc
import logging
import os
import signal
import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import ClassVar, Protocol, runtime_checkable

from timestone.errors import TimestoneError
from timestone.fronts import Reloadable
from timestone.store import Store

from ..errors import CommandError

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_COLLECTOR_THRESHOLDS = (50_000, 20, 100)
_log = logging.getLogger("timestone.serve")


class Service(Protocol):
    """Service that starts and stops with the server: a front, the tier, or the page of metrics."""

    name: ClassVar[str]

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


@runtime_checkable
class Interruptible(Protocol):
    """Service whose start may wait long for others."""

    def interrupt(self) -> None:
        """Cancel the task of the start while it waits; nothing is left to stop then. Else do nothing."""


class Server:
    """Services on one store, from their start to the closed store."""

    def __init__(self, store: Store, services: Sequence[Service], *, stop_timeout_s: float) -> None:
        self._store = store
        self._services = services
        self._stop_timeout_s = stop_timeout_s
        self._stopping = asyncio.Event()
        self._reload_lock = asyncio.Lock()
        self._reloads: set[asyncio.Task[None]] = set()
        self._terminals = [fd for fd in (0, 1, 2) if _is_terminal(fd)]

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until a signal. Calls `ready` when every service has started; closes the store, also when it raises.
        A signal that comes before that ends the start after the service that is starting, or within it if that may
        wait for others.

        Raises CommandError when a service cannot start; those that did are stopped first.
        """
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        started: list[Service] = []
        try:
            for service in self._services:
                starting = loop.create_task(self._start(service))
                await asyncio.wait([starting])
                if starting.cancelled():
                    return
                starting.result()
                started.append(service)
                if self._stopping.is_set():
                    return
            with _collector_spared():
                ready()
                await self._stopping.wait()
        finally:
            # Services first: fronts release what waits for the store, and nothing may append to a closed one.
            for service in reversed(started):
                await self._finish(service)
            # In a thread, because it syncs and seals: the second signal must be handled during that.
            await loop.run_in_executor(None, self._store.close)

    def _stop(self, number: int) -> None:
        if self._stopping.is_set():
            # No cleaning up: that did not end. What was acknowledged is as safe as after kill -9.
            with suppress(OSError):
                print("stopped at once by the second signal", file=sys.stderr, flush=True)
            os._exit(128 + number)
        self._stopping.set()
        for service in self._services:
            if isinstance(service, Interruptible):
                service.interrupt()
        try:
            print(f"stopping ({signal.Signals(number).name}); a second signal stops at once", flush=True)
        except OSError:
            _write_nowhere([1])

    def _hang_up(self) -> None:
        """Reload changed files, or stop if the terminal is gone: SIGHUP means either."""
        gone = [fd for fd in self._terminals if not _is_terminal(fd)]
        if gone:
            _write_nowhere(gone)
        if gone or not any(isinstance(service, Reloadable) for service in self._services):
            self._stop(signal.SIGHUP)
        elif not self._stopping.is_set():
            task = asyncio.get_running_loop().create_task(self._reload())
            self._reloads.add(task)
            task.add_done_callback(self._reloads.discard)

    async def _reload(self) -> None:
        async with self._reload_lock:
            for service in self._services:
                if not isinstance(service, Reloadable):
                    continue
                try:
                    await service.reload()
                except (OSError, ValueError, TimestoneError) as error:
                    _log.error("%s: nothing was reloaded: %s", service.name, error)
                else:
                    _log.info("%s: reloaded", service.name)

    async def _start(self, service: Service) -> None:
        try:
            await service.start()
        except (OSError, ValueError, TimestoneError) as error:
            raise CommandError(f"{service.name}: {getattr(error, 'strerror', None) or error}") from error

    async def _finish(self, service: Service) -> None:
        try:
            await asyncio.wait_for(service.stop(), self._stop_timeout_s)
        except TimeoutError:
            _log.warning("%s: did not stop within %g s and is abandoned", service.name, self._stop_timeout_s)
        except Exception:
            _log.exception("%s: failed while stopping", service.name)


@contextmanager
def _collector_spared() -> Iterator[None]:
    """Raise the thresholds of the garbage collector. Reference cycles are rare here. With Python's own thresholds, one
    message at a time costs a tenth of the processor in searching for them, and ten thousand sessions a pause of fifty
    milliseconds at intervals."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _is_terminal(fd: int) -> bool:
    """Return whether a descriptor is a terminal in use."""
    try:
        termios.tcgetattr(fd)
    except termios.error:
        return False  # also if it was one and its window is closed
    return True


def _write_nowhere(fds: Sequence[int]) -> None:
    """Redirect descriptors to /dev/null after their reader is gone: writing would fail and prevent an orderly stop."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in fds:
        os.dup2(nowhere, fd)
    os.close(nowhere)
