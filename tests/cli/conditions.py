"""Stores in each state that `inspect` tells apart, made from a real store by damaging its files by hand."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import timestone
from tests.cli.processes import Running
from tests.support.stores import fill
from tests.support.waiting import wait_for

FOLDER = "telemetry-0"


def clean(path: Path) -> None:
    """1,500 records in two sealed segments."""
    fill(path, 1500)


def empty_log(path: Path) -> None:
    with timestone.open(path) as store:
        store.log("telemetry")


def unclosed(path: Path) -> None:
    """500 records whose process was killed."""
    with Running("append", str(path), "telemetry", "--ack", "written", cwd=path.parent) as running:
        assert running.process.stdin is not None
        running.process.stdin.write(b"record\n" * 500)
        running.process.stdin.flush()
        wait_for(lambda: _has_records(path, 500), timeout_s=120)
        running.process.send_signal(signal.SIGKILL)
        running.process.wait()


def _has_records(path: Path, count: int) -> bool:
    try:
        with timestone.view(path) as view:
            return view.log("telemetry").end_offset == count
    except timestone.TimestoneError:
        return False


def torn(path: Path) -> None:
    """Like `unclosed`, with bytes behind the last record that no entry points to."""
    unclosed(path)
    with (path / FOLDER / f"{0:020d}.segment").open("ab") as segment:
        segment.write(b"half a rec")


def damaged(path: Path) -> None:
    """A byte of record 1003 is not what it was."""
    clean(path)
    segment = path / FOLDER / f"{1000:020d}.segment"
    content = bytearray(segment.read_bytes())
    content[3 * len(b"record 1000")] ^= 1
    segment.write_bytes(content)


def orphaned(path: Path) -> None:
    """The first segment has lost its index."""
    clean(path)
    (path / FOLDER / f"{0:020d}.index").unlink()


def unreadable(path: Path) -> None:
    """A file of the log is written by a version to come."""
    clean(path)
    index = path / FOLDER / f"{0:020d}.index"
    index.unlink()
    os.mkfifo(index.with_suffix(".fifo"))
    shutil.copy(path / FOLDER / "topics", path / FOLDER / "topics.copy")
    (path / FOLDER / "topics").unlink()
    (path / FOLDER / "topics").mkdir()


CONDITIONS: dict[str, tuple[Callable[[Path], None], int, str]] = {
    "clean": (clean, 0, "clean (exit code 0"),
    "empty": (empty_log, 0, "clean (exit code 0"),
    "unclosed": (unclosed, 1, "unclosed but consistent (exit code 1"),
    "torn": (torn, 2, "torn tail (exit code 2"),
    "damaged": (damaged, 3, "corruption (exit code 3"),
    "orphaned": (orphaned, 3, "corruption (exit code 3"),
    "unreadable": (unreadable, 4, "unreadable (exit code 4"),
}
"""Condition -> how to make it, the exit code, the verdict. `damaged` shows only with --deep."""
