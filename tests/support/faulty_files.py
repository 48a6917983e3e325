"""A twin of `timestone.disk.files.Files` whose operations fail on demand: an errno, a short write, the end of the
process.

What belongs here: when and how an operation fails. It works on top of the real `Files` or of `RecordingFiles`.
"""

import errno
import mmap
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.support.recording_files import RecordingFiles
from timestone.disk.files import Data, Files

Result = TypeVar("Result")

MUTATING = (
    "create",
    "open_lock",
    "pwrite",
    "reserve",
    "allocate_ahead",
    "truncate",
    "fdatasync",
    "sync_directory",
    "make_directory",
    "rename",
    "unlink",
    "remove_directory",
)
"""The operations that change the disk, under the names of the methods. Only these count for `kill`."""
ANY = "any"
READING = ("open", "pread", "map", "free_bytes")


class SimulatedKill(BaseException):
    """The process has died here. Not an Exception: code that catches Exception must not survive the simulated death."""


def simulate_kill() -> None:
    raise SimulatedKill


def kill_process() -> None:
    """End the process as by kill -9: a forked child uses it in place of `simulate_kill`."""
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(slots=True)
class Fault:
    """Fails the `nth` call of `operation` from now on for files whose path contains `path`, or all from there on.

    The operation `ANY` means all that change the disk. With `written_bytes`, a pwrite first returns short after this
    number of bytes; the next call gets the error, as on a disk that fills up. `error` 0 leaves it at the short write.
    """

    operation: str
    error: int = errno.EIO
    nth: int = 1
    forever: bool = False
    path: str = ""
    written_bytes: int | None = None
    seen: int = 0
    hits: int = 0
    lifted: bool = False

    def applies(self, operation: str, path: str) -> bool:
        meant = operation == self.operation or (self.operation == ANY and operation in MUTATING)
        if self.lifted or not meant or self.path not in path:
            return False
        self.seen += 1
        hit = self.seen >= self.nth if self.forever else self.seen == self.nth
        self.hits += hit
        return hit

    def lift(self) -> None:
        """Remove the cause: the disk works again."""
        self.lifted = True


@dataclass(frozen=True, slots=True)
class _Death:
    call: int
    moment: str
    die: Callable[[], None]


class FaultyFiles(Files):
    """Fails operations. Thread-safe. `calls` lists the mutating operations so far with their file's path."""

    def __init__(self, inner: Files | None = None) -> None:
        self.inner = inner or Files()
        self.calls: list[tuple[str, str]] = []
        self.faults: list[Fault] = []
        self.dead = False
        self._death: _Death | None = None
        self._paths: dict[int, str] = {}
        self._lock = threading.RLock()

    @property
    def counts(self) -> Counter[str]:
        """Return how often each mutating operation was called."""
        return Counter(operation for operation, _ in self.calls)

    def fail(self, operation: str, error: int = errno.EIO, **how: Any) -> Fault:
        """Let an operation fail; see `Fault`. Counting starts now."""
        assert operation in (ANY, *MUTATING, *READING), operation
        fault = Fault(operation, error, **how)
        self.faults.append(fault)
        return fault

    def kill(self, number: int, moment: str = "before", die: Callable[[], None] = simulate_kill) -> None:
        """Die at the `number`-th mutating operation from now on: "before", in the "middle" or "after".

        In the middle of a pwrite half of the bytes are written; the other operations have no middle and die before.
        """
        assert moment in ("before", "middle", "after"), moment
        self._death = _Death(len(self.calls) + number, moment, die)

    def abandon(self) -> None:
        """Close the descriptors of the dead process, so that its locks are free, as the kernel does."""
        self.dead = True
        with self._lock:
            while self._paths:
                self.inner.close(self._paths.popitem()[0])

    def _enter(self, name: str, path: str) -> tuple[Fault | None, bool]:
        """Count a call; return its fault, and whether the process dies at it."""
        if self.dead:
            raise SimulatedKill
        dying = False
        if name in MUTATING:
            self.calls.append((name, path))
            dying = self._death is not None and self._death.call == len(self.calls)
        return next((fault for fault in self.faults if fault.applies(name, path)), None), dying

    def _die(self) -> None:
        assert self._death is not None
        self.dead = True
        self._death.die()

    def _run(
        self,
        name: str,
        path: str,
        run: Callable[[], Result],
        partly: Callable[[int | None], Result] | None = None,
    ) -> Result:
        """Run an operation or let it fail. `partly(n)` does its first n bytes, or half of it for None."""
        with self._lock:
            fault, dying = self._enter(name, path)
            if dying and self._death is not None and self._death.moment != "after":
                if self._death.moment == "middle" and partly is not None:
                    partly(None)
                self._die()
        if fault is not None and fault.written_bytes is not None and partly is not None:
            if fault.error:  # the bytes up to the full disk are written; the next call gets the error
                self.fail(name, fault.error, path=path)
            return partly(fault.written_bytes)
        if fault is not None:
            raise OSError(fault.error, os.strerror(fault.error), path)
        result = run()
        if dying:
            self._die()
        return result

    def _path(self, fd: int) -> str:
        return self._paths.get(fd, "?")

    def _opened(self, fd: int, path: Path) -> int:
        self._paths[fd] = str(path)
        return fd

    # Operations that change the disk.

    def create(self, path: Path) -> int:
        return self._opened(self._run("create", str(path), lambda: self.inner.create(path)), path)

    def open_lock(self, path: Path) -> int:
        return self._opened(self._run("open_lock", str(path), lambda: self.inner.open_lock(path)), path)

    def pwrite(self, fd: int, data: Data, position: int) -> int:
        view = memoryview(data).cast("B")

        def write(count: int | None = len(view)) -> int:
            return self.inner.pwrite(fd, view[: len(view) // 2 if count is None else count], position)

        return self._run("pwrite", self._path(fd), write, write)

    def pwritev(self, fd: int, pieces: tuple[bytes, ...], position: int) -> int:
        return self.pwrite(fd, b"".join(pieces), position)  # one fault for either call

    def reserve(self, fd: int, start: int, end: int) -> None:
        self._run("reserve", self._path(fd), lambda: self.inner.reserve(fd, start, end))

    def allocate_ahead(self, fd: int, start: int, end: int) -> None:
        self._run("allocate_ahead", self._path(fd), lambda: self.inner.allocate_ahead(fd, start, end))

    def truncate(self, fd: int, size: int) -> None:
        self._run("truncate", self._path(fd), lambda: self.inner.truncate(fd, size))

    def fdatasync(self, fd: int) -> None:
        try:
            self._run("fdatasync", self._path(fd), lambda: self.inner.fdatasync(fd))
        except OSError:
            if isinstance(self.inner, RecordingFiles):
                self.inner.fail_sync(fd)
            raise

    def begin_flush(self, one: int, other: int, wake_fd: int) -> None:
        """Have `fdatasync_both` called."""

    def fdatasync_both(self, one: int, other: int) -> None:
        """Flush one after the other: a test that plans the n-th operation means the same one each time."""
        self.fdatasync(one)
        self.fdatasync(other)

    def sync_directory(self, path: Path) -> None:
        self._run("sync_directory", str(path), lambda: self.inner.sync_directory(path))

    def make_directory(self, path: Path) -> None:
        self._run("make_directory", str(path), lambda: self.inner.make_directory(path))

    def rename(self, source: Path, target: Path) -> None:
        self._run("rename", str(target), lambda: self.inner.rename(source, target))

    def unlink(self, path: Path) -> None:
        self._run("unlink", str(path), lambda: self.inner.unlink(path))

    def remove_directory(self, path: Path) -> None:
        self._run("remove_directory", str(path), lambda: self.inner.remove_directory(path))

    # Operations that only read.

    def open(self, path: Path, *, write: bool = False) -> int:
        return self._opened(self._run("open", str(path), lambda: self.inner.open(path, write=write)), path)

    def close(self, fd: int) -> None:
        with self._lock:
            if self._paths.pop(fd, None) is not None:
                self.inner.close(fd)

    def unlock(self, fd: int) -> None:
        with self._lock:
            if fd in self._paths:
                self.inner.unlock(fd)

    def pread(self, fd: int, length_bytes: int, position: int) -> bytes:
        return self._run("pread", self._path(fd), lambda: self.inner.pread(fd, length_bytes, position))

    def map(self, fd: int, length_bytes: int) -> mmap.mmap:
        return self._run("map", self._path(fd), lambda: self.inner.map(fd, length_bytes))

    def free_bytes(self, path: Path) -> int:
        return self._run("free_bytes", str(path), lambda: self.inner.free_bytes(path))
