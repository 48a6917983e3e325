"""Runs a command in a process that has imported everything already, and forks for each call.

As a program: the process that forks. It gets words, folder, environment and the three standard streams of each call
over a socket, and answers with the pid, and at the end with the exit code. A cold interpreter spends most of its time
on imports; hundreds of tests run a command that takes milliseconds, or start nodes of a cluster and kill them.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

IMPORTED = [
    "timestone_cli.main",
    *(
        f"timestone_cli.commands.{name}"
        for name in (
            "append",
            "backup",
            "configure",
            "delete",
            "inspect",
            "read",
            "readers",
            "salvage",
            "serve",
        )
    ),
    *(f"timestone_cli.mqtt.{name}" for name in ("passwd", "pub", "sub")),
    "flight_front.front",
    "mqtt_front.front",
    "timestone.replication.upkept_replica",
    "timestone_cluster.node.node",
    "timestone_cluster.operations",
    "unittest.mock",
    "uvloop",
]
_REQUEST_BYTES = 1 << 20


def matters_at_import(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that an interpreter or an import reads: a call with others needs a process of its own."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(("PYTHON", "LC_", "LANG", "TZ", "TIMESTONE_PURE"))
    }


class WarmProcess:
    """A command in a fork, which runs: what `Popen` has of it, as far as tests use that."""

    def __init__(self, connection: socket.socket) -> None:
        """connection: on which the process that forks answers."""
        self._connection = connection
        self.pid = int(connection.recv(16))
        self._code: int | None = None
        self._handle: int | None = None
        with suppress(ProcessLookupError):  # it has ended since
            self._handle = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        """Return the exit code, minus the signal that ended it; None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code at its end. Raises subprocess.TimeoutExpired."""
        if self._code is None:
            self._connection.settimeout(timeout)
            try:
                self._code = int(self._connection.recv(16))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(f"pid {self.pid}", timeout or 0) from None
            self._connection.close()
            if self._handle is not None:
                os.close(self._handle)
        return self._code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, if it runs."""
        if self.poll() is None and self._handle is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        """Send SIGKILL, if it runs."""
        self.send_signal(signal.SIGKILL)


class WarmCommand:
    """The process that forks, as its parent sees it. Calls may come from several threads."""

    def __init__(self) -> None:
        self.environment = matters_at_import(os.environ)
        self._folder = tempfile.TemporaryDirectory(prefix="timestone-warm-")
        self._path = str(Path(self._folder.name) / "socket")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.warm_command", self._path],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def run(
        self,
        words: Sequence[str],
        *,
        stdin: bytes,
        cwd: Path | None,
        environment: Mapping[str, str],
        timeout_s: float,
    ) -> tuple[int, bytes, bytes]:
        """Return exit code (minus the signal that ended it), standard output and standard error."""
        in_read, in_write = os.pipe()
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        try:
            started = self.start(
                ["timestone_cli", *words], [in_read, out_write, err_write], cwd=cwd, environment=environment
            )
        finally:
            for fd in (in_read, out_write, err_write):
                os.close(fd)
        out, err = _Collected(out_read), _Collected(err_read)
        _write_all(in_write, stdin)
        code = started.wait(timeout_s)
        return code, out.all(), err.all()

    def start(
        self,
        words: Sequence[str],
        streams: Sequence[int],
        *,
        cwd: Path | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> WarmProcess:
        """Start a command. words: what stands behind `python -m`. streams: the three standard ones."""
        request = {"words": list(words), "cwd": str(cwd or Path.cwd()), "environment": dict(environment)}
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(self._path)
            socket.send_fds(connection, [json.dumps(request).encode()], list(streams))
            return WarmProcess(connection)
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._folder.cleanup()


class _Collected(threading.Thread):
    """All that comes out of a pipe."""

    def __init__(self, fd: int) -> None:
        super().__init__(daemon=True)
        self._fd = fd
        self._data = b""
        self.start()

    def run(self) -> None:
        with open(self._fd, "rb") as stream:
            self._data = stream.read()

    def all(self) -> bytes:
        self.join()
        return self._data


def _write_all(fd: int, data: bytes) -> None:
    with open(fd, "wb", buffering=0) as stream:
        try:
            while data:
                data = data[stream.write(data) :]
        except BrokenPipeError:
            pass  # the command has ended without reading all of it


_warm: WarmCommand | None = None
_starting = threading.Lock()


def warm_command() -> WarmCommand:
    """Return the one process of this test run, started at the first call."""
    global _warm
    with _starting:
        if _warm is None:
            _warm = WarmCommand()
            atexit.register(_warm.close)
        return _warm


def started(words: Sequence[str], streams: Sequence[int]) -> subprocess.Popen[bytes] | WarmProcess:
    """Start what stands behind `python -m`, with three standard streams: in a fork of the warm process, unless the
    environment has something that an interpreter reads at its start."""
    warm = warm_command()
    if matters_at_import(os.environ) == warm.environment:
        return warm.start(words, streams)
    stdin, stdout, stderr = streams
    return subprocess.Popen([sys.executable, "-m", *words], stdin=stdin, stdout=stdout, stderr=stderr)


def _serve(path: str) -> list[str]:
    """Fork for each request until the parent has ended. Returns in each child, with the words of its command."""
    running: dict[int, socket.socket] = {}
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    woken.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(64)
    parent = os.getppid()
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(woken, selectors.EVENT_READ)
    print("ready", flush=True)
    while os.getppid() == parent:
        for key, _ in selector.select(timeout=5):
            if key.fileobj is woken:
                woken.recv(4096)
                for pid, connection in list(running.items()):
                    ended, status = os.waitpid(pid, os.WNOHANG)
                    if ended:
                        with suppress(OSError):  # nothing waits for it any more
                            connection.send(str(os.waitstatus_to_exitcode(status)).encode())
                        connection.close()
                        del running[pid]
                continue
            connection, _ = listener.accept()
            data, fds, _, _ = socket.recv_fds(connection, _REQUEST_BYTES, 3)
            if child := os.fork():
                running[child] = connection
                with suppress(OSError):
                    connection.send(str(child).encode())
                for fd in fds:
                    os.close(fd)
                continue
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            selector.close()
            for each in (listener, woken, wake, connection, *running.values()):
                each.close()
            for target, fd in enumerate(fds):
                os.dup2(fd, target)
                os.close(fd)
            request = json.loads(data)
            os.environ.clear()
            os.environ.update(request["environment"])
            os.chdir(request["cwd"])
            words: list[str] = request["words"]
            return words
    os._exit(0)


if __name__ == "__main__":
    for module in IMPORTED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    program, *sys.argv[1:] = _serve(sys.argv[1])
    if program == "timestone_cli":
        code = importlib.import_module("timestone_cli.main").main()
    else:
        try:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
    # What the end of an interpreter does but for taking every module apart, which would copy all of its memory.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    os._exit(code)
