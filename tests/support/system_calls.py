"""Faults at system calls of a real process, below all code of the engine: `system_calls.c`, loaded with LD_PRELOAD.

What belongs here: building that library, arming it in a forked process, and the process that forks. It loads the engine
once; each run is a fork of it, so that hundreds of runs take seconds:

    with FaultedProcess(library) as process:
        done = process.run("tests.support.faulted_owner", root, Fault(Action.KILL, 17))

The runs report facts, lines of JSON, through a pipe.
"""

import ctypes
import enum
import errno
import importlib
import json
import os
import shutil
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).with_suffix(".c")

Tell = Callable[..., None]
"""Writes one fact: a word and its values."""


class Calls(enum.IntFlag):
    """Which system calls count, as in `system_calls.c`."""

    CHANGES = 1
    READS = 2
    OPENS = 4


class Action(enum.IntEnum):
    """The action at the call, as in `system_calls.c`."""

    PASS = 0
    KILL = 1
    FAIL = 2
    SHORT = 3
    KILL_IN_THE_MIDDLE = 4


@dataclass(frozen=True, slots=True)
class Fault:
    """The `number`-th counted call meets the action, and with `forever` all after it."""

    action: Action = Action.PASS
    number: int = 0
    error: int = errno.EIO
    forever: bool = False
    calls: Calls = Calls.CHANGES


@dataclass(frozen=True, slots=True)
class Run:
    """Result of one run."""

    status: int
    """As from `os.waitpid`: 0, or the number of the signal that ended it."""
    facts: list[list[Any]]
    calls: list[str]
    """Each counted call, with its file's path below the store: `pwrite /catalog.db`."""


def build_library(folder: Path, source: Path = SOURCE) -> Path | None:
    """Compile the library, or another one of a single file; None without a compiler."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        return None
    library = folder / f"{source.stem}.so"
    command = [
        compiler,
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
        "-o",
        library,
        source,
        "-ldl",
    ]
    subprocess.run([str(word) for word in command], check=True)
    return library


class FaultedProcess:
    """A process with the library loaded, which runs its orders in forks of itself."""

    def __init__(self, library: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.system_calls"],
            cwd=ROOT,
            env={**os.environ, "LD_PRELOAD": str(library)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()

    def run(self, module: str, root: Path, fault: Fault = Fault(), **arguments: Any) -> Run:
        """Fork, arm, and call `module.main(root, tell, **arguments)`; calls on files below `root` count."""
        assert self._process.stdin and self._process.stdout
        order = {"module": module, "root": str(root), "fault": asdict(fault), "arguments": arguments}
        print(json.dumps(order), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, "the process that forks has ended"
        return Run(**json.loads(answer))


def _run_in_fork(order: dict[str, Any], library: ctypes.CDLL) -> dict[str, Any]:
    facts, tell_fd = os.pipe()
    calls, trace_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(facts)
        os.close(calls)
        _be_faulted(order, library, tell_fd, trace_fd)
    os.close(tell_fd)
    os.close(trace_fd)
    said: dict[int, str] = {}
    readers = [threading.Thread(target=_read_all, args=(fd, said)) for fd in (facts, calls)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    told = [json.loads(line) for line in said[facts].splitlines() if line.endswith("]")]
    return {"status": os.waitpid(pid, 0)[1], "facts": told, "calls": said[calls].splitlines()}


def _read_all(fd: int, said: dict[int, str]) -> None:
    with os.fdopen(fd) as pipe:
        said[fd] = pipe.read()


def _be_faulted(order: dict[str, Any], library: ctypes.CDLL, tell_fd: int, trace_fd: int) -> None:
    """Run in the fork. Never returns."""

    def tell(*fact: object) -> None:
        os.write(tell_fd, json.dumps(fact).encode() + b"\n")

    def die_with_the_thread(death: threading.ExceptHookArgs) -> None:
        traceback.print_exception(death.exc_value)
        os._exit(1)

    threading.excepthook = die_with_the_thread
    fault = order["fault"]
    try:
        main = importlib.import_module(order["module"]).main
        library.calls_arm(
            os.fsencode(order["root"]), fault["calls"], fault["number"], fault["action"], fault["error"],
            int(fault["forever"]), trace_fd,
        )  # fmt: skip
        main(Path(order["root"]), tell, **order["arguments"])
        library.calls_disarm()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def disarm() -> None:
    """Remove the cause, called in the fork: nothing fails any more."""
    ctypes.CDLL(None).calls_disarm()


def main() -> None:
    """Run the process that forks: an order a line, an answer a line."""
    library = ctypes.CDLL(None)
    for line in sys.stdin:
        order = json.loads(line)
        importlib.import_module(order["module"])  # once, before the fork
        print(json.dumps(_run_in_fork(order, library)), flush=True)


if __name__ == "__main__":
    main()
