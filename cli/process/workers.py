"""Several nodes of a cluster on one machine, each a process: started, watched, started again, and stopped together.

What they print is passed on line by line. Here is not what a node does, nor where settings come from."""

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

_FIRST_PAUSE_S, _MOST_PAUSE_S = 1.0, 30.0
_STEADY_S = 60.0
"""One that ran for so long starts again at once, and its next pause is the first one."""
_LINE_BYTES = 1 << 20
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
SOCKETS_VARIABLE = "_TIMESTONE_SOCKETS"
"""Descriptors of the sockets among workers, for one of them (`worker_sockets`)."""
_DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2)."""
_log = logging.getLogger("timestone.serve")


@dataclass(slots=True)
class Worker:
    """One process, whichever life it is in."""

    name: str
    options: Sequence[str]
    """Words of its command after `serve`."""
    has_started: bool = False
    """Whether it has been ready since the start of all."""
    is_ready: bool = False
    process: asyncio.subprocess.Process | None = None


class Workers:
    """All workers of a server. For one event loop."""

    def __init__(
        self, commands: Mapping[str, Sequence[str]], environment: Mapping[str, str], *, prefixes_log: bool
    ) -> None:
        """commands: options of each worker by its name. environment: of all of them. prefixes_log: whether lines of the
        log get the name as well."""
        self._workers = [Worker(name, options) for name, options in commands.items()]
        self._environment, self._prefixes_log = environment, prefixes_log
        self._stopping = asyncio.Event()
        self._exit_code = 0
        self._ready: Callable[[Sequence[str]], None] = lambda names: None
        self._pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in self._workers]
        """By the number of the worker: what it receives from, and what the others send to. They outlive its process."""

    async def run(self, ready: Callable[[Sequence[str]], None]) -> int:
        """Run all workers until a signal, and return the exit code: of the first one that could not start at all, else
        0. ready: called with the names of those that are ready, once all are, and whenever one ends or is again."""
        self._ready = ready
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._pass_on, signal.SIGHUP)
        running = [loop.create_task(self._keep(worker)) for worker in self._workers]
        await asyncio.gather(*running)
        return self._exit_code

    def _set_ready(self, worker: Worker, is_ready: bool) -> None:
        worker.is_ready = is_ready
        worker.has_started |= is_ready
        if all(one.has_started for one in self._workers) and not self._stopping.is_set():
            self._ready([one.name for one in self._workers if one.is_ready])

    def _stop(self, number: int) -> None:
        """Stop all; a second signal stops them at once."""
        if not self._stopping.is_set():
            print(f"stopping ({signal.Signals(number).name}); a second signal stops at once", flush=True)
        self._stopping.set()
        self._pass_on(signal.SIGTERM)

    def _pass_on(self, number: int) -> None:
        for worker in self._workers:
            if worker.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    worker.process.send_signal(number)

    async def _keep(self, worker: Worker) -> None:
        """Run a worker, again and again."""
        pause_s = _FIRST_PAUSE_S
        while not self._stopping.is_set():
            began_s = time.monotonic()
            code = await self._run(worker)
            if self._stopping.is_set():
                return
            if not worker.has_started:
                _log.error("%s could not start: exit code %d; all are stopped", worker.name, code)
                self._exit_code = self._exit_code or (code if code > 0 else 1)
                self._stopping.set()
                self._pass_on(signal.SIGTERM)
                return
            if time.monotonic() - began_s >= _STEADY_S:
                pause_s = _FIRST_PAUSE_S
            _log.error("%s has ended with exit code %d; it starts again in %g s", worker.name, code, pause_s)
            self._set_ready(worker, False)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)
            pause_s = min(2 * pause_s, _MOST_PAUSE_S)

    def _sockets(self, worker: Worker) -> list[int]:
        """Return the descriptors for a worker: what it receives from, where the others have what they send to it."""
        return [
            pair[one is not worker].fileno() for one, pair in zip(self._workers, self._pairs, strict=True)
        ]

    async def _run(self, worker: Worker) -> int:
        sockets = self._sockets(worker)
        process = worker.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "timestone_cli",
            "serve",
            *worker.options,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**self._environment, SOCKETS_VARIABLE: ",".join(map(str, sockets))},
            pass_fds=sockets,
            limit=_LINE_BYTES,
            start_new_session=True,  # Ctrl-C in a terminal is for this process, which passes it on
            preexec_fn=_end_with(os.getpid()),
        )
        if self._stopping.is_set():
            process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stderr is not None
        await asyncio.gather(
            self._pass_lines(worker, process.stdout, sys.stdout),
            self._pass_lines(worker, process.stderr, sys.stderr),
        )
        code = await process.wait()
        worker.process = None
        return code

    async def _pass_lines(self, worker: Worker, lines: asyncio.StreamReader, to: "object") -> None:
        is_log = to is sys.stderr
        while line := await _line(lines):
            prefix = f"{worker.name}  " if self._prefixes_log or not is_log else ""
            text = prefix + line.decode(errors="replace")
            print(text, end="" if text.endswith("\n") else "\n", file=to, flush=True)  # type: ignore[call-overload]
            if not is_log and line == b"ready\n":
                self._set_ready(worker, True)


def worker_sockets(text: str, name: str) -> tuple[socket.socket, dict[str, socket.socket]]:
    """Return the sockets that a worker was started with: what it receives from, and what it sends to, by the name of
    the node. text: the value of `SOCKETS_VARIABLE`. name: of its own node, NAME-K."""
    first, _, own = name.rpartition("-")
    found = {
        f"{first}-{number}": socket.socket(fileno=int(one)) for number, one in enumerate(text.split(","))
    }
    return found.pop(f"{first}-{own}"), found


async def _line(lines: asyncio.StreamReader) -> bytes:
    """Return the next line, or the beginning of one that is too long; empty at the end."""
    try:
        return await lines.readline()
    except ValueError:  # its buffer is emptied
        return b"(a line that is too long)\n"


def _end_with(parent: int) -> Callable[[], None]:
    """Return what has a process end in order when its parent does, however that ends (Linux)."""
    library = ctypes.CDLL(None)

    def prepare() -> None:
        library.prctl(_DIE_WITH_PARENT, signal.SIGTERM)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    return prepare
