"""Servers that a benchmark starts, each in a separate directory, and ends by the pid that it started."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..errors import BenchmarkError
from .target import NULL_SERVER, WRITING_NULL_SERVER, Target

_READY_S = 60.0
"""On a machine whose disk is busy, the first start of a program takes long."""
_STOP_S = 20.0


@contextmanager
def timestone_server(directory: Path, name: str, ack: str, *options: str) -> Iterator[Target]:
    """`timestone serve` on an empty directory."""
    ready = directory / "ready.json"
    command = [
        sys.executable, "-m", "timestone_cli", "serve", "--data", str(directory / "data"),
        "--mqtt", "127.0.0.1:0", "--ack", ack, "--ready-file", str(ready),
        "--mqtt-connection-count", "20000", "--log-level", "warning", *options,
    ]  # fmt: skip
    with server_process(command, directory) as process:
        _wait_until(ready.exists, process, directory)
        state = json.loads(ready.read_text("utf-8"))
        host, _, port = state["fronts"]["mqtt"]["address"].rpartition(":")
        yield Target(name, "mqtt", host, int(port), process.pid)


@contextmanager
def null_servers(directory: Path) -> Iterator[list[Target]]:
    """The server that does nothing, and the one that also writes."""
    with null_server() as idle, null_server(directory) as writing:
        yield [idle, writing]


@contextmanager
def null_server(directory: Path | None = None) -> Iterator[Target]:
    """The server that does nothing, or with a directory only writes two files there."""
    command = [sys.executable, "-m", f"{__package__}.null_server", *([str(directory)] if directory else [])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0) as process:
        try:
            assert process.stdout is not None
            name = WRITING_NULL_SERVER if directory else NULL_SERVER
            yield Target(name, "mqtt", "127.0.0.1", int(process.stdout.readline()), process.pid)
        finally:
            process.kill()


@contextmanager
def server_process(command: Sequence[str], directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block is left. Its output goes to `server.log` in the directory."""
    with (directory / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until_listening(address: tuple[str, int], process: subprocess.Popen[bytes], directory: Path) -> None:
    """Raises BenchmarkError with the last line of the server's output when it does not start to listen."""
    _wait_until(lambda: listens(address), process, directory)


def listens(address: tuple[str, int]) -> bool:
    """Return whether a server listens at an address."""
    with socket.socket() as probe:
        return probe.connect_ex(address) == 0


def _wait_until(is_ready: Callable[[], bool], process: subprocess.Popen[bytes], directory: Path) -> None:
    deadline = time.monotonic() + _READY_S
    while not is_ready():
        if process.poll() is not None or time.monotonic() > deadline:
            assert isinstance(process.args, list)
            program = " ".join([Path(process.args[0]).name, *process.args[1:4]])
            how = f"was not ready within {_READY_S:g} s" if process.poll() is None else "ended"
            said = (directory / "server.log").read_text("utf-8", "replace").strip().splitlines()
            why = said[-1] if said else "without any output"
            raise BenchmarkError(f"a server did not start: {why} (`{program}` {how})")
        time.sleep(0.01)
