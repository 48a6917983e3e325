"""Time to open a store after its owner was killed, by the size of the store.

A child process fills a store and kills itself during that, as an out-of-memory killer would. Then the store is opened
and the first and the last record are read. The unsealed files are restored and the same is measured again with the
store's pages dropped from the page cache, as after a reboot.
"""

import multiprocessing
import os
import shutil
import signal
import statistics
import time
from pathlib import Path

import click

import timestone
from timestone import WriteBatch
from timestone.disk.files import Files
from timestone.repair.inspection import inspect_store
from timestone_cli.errors import UsageError
from timestone_cli.group import Command

from ..environment import probe_environment
from ..errors import BenchmarkError
from ..options import AMOUNT, directory_option, json_option, progress_line, repeat_option
from ..report import print_report
from ..working_directory import working_directory
from .workload import Workload

_LOG = "telemetry"
_RECORD_BYTES = 100
_BATCH = 4096
_TOPICS = 1000
_GB = 10**9


@click.command(cls=Command)
@click.option("--gigabytes", metavar="N", type=AMOUNT, default=1.0, help="10^9 bytes of records.")
@repeat_option(3, "Opens of each kind.")
@directory_option()
@json_option
def command(gigabytes: float, repeat: int, directory: Path, as_json: bool) -> None:
    """Opening a store whose owner was killed."""
    progress = progress_line()
    if not gigabytes:
        raise UsageError("invalid --gigabytes: expected a number above 0, got 0")
    if not directory.is_dir():
        raise BenchmarkError(f"{directory} is not a directory")
    needed = int(gigabytes * _GB * 1.5) + _GB
    if Files().free_bytes(directory) < needed:
        raise BenchmarkError(f"{directory} has no {needed / _GB:.1f} GB free")
    with working_directory(directory) as root:
        progress("filling a store")
        _fill(root / "data", int(gigabytes * _GB))
        shutil.copytree(root / "data", root / "unclosed", ignore=_closed)
        result: dict[str, float] = _facts(root / "data")
        for kind, prepare in (("warm", _nothing), ("cold", _drop)):
            times = []
            for number in range(repeat):
                progress(f"{kind}, open {number + 1} of {repeat}")
                shutil.copytree(root / "unclosed", root / "data", dirs_exist_ok=True)
                prepare(root / "data")
                times.append(_open_s(root / "data"))
            result[f"{kind}_open_s"] = statistics.median(times)
        environment = probe_environment(root)
    progress("")
    lines = [
        f"{result['gigabytes']:.1f} GB in {result['segments']:.0f} segments, "
        f"{result['unclosed_megabytes']:.0f} MB of it not sealed",
        f"open and first read: {result['warm_open_s']:.2f} s, nothing cached: {result['cold_open_s']:.2f} s",
    ]
    print_report("opening", result, environment, lines, as_json=as_json)


def _fill(path: Path, size_bytes: int) -> None:
    # Spawned: a forked copy of a process with threads is not a clean start.
    process = multiprocessing.get_context("spawn").Process(target=_fill_and_die, args=(path, size_bytes))
    process.start()
    process.join()
    if process.exitcode != -signal.SIGKILL:
        raise BenchmarkError(f"the store could not be filled: exit code {process.exitcode}")


def _fill_and_die(path: Path, size_bytes: int) -> None:
    log = timestone.open(path, ack="written").log(_LOG)
    ids = [log.topic_id(f"devices/{number}/state") for number in range(_TOPICS)]
    topics = [ids[number % _TOPICS] for number in range(_BATCH)]
    for chunk in Workload(_RECORD_BYTES, size_bytes // _RECORD_BYTES).chunks(_BATCH):
        log.append_batch(WriteBatch(chunk, topics[: len(chunk)]))
    os.kill(os.getpid(), signal.SIGKILL)


def _facts(path: Path) -> dict[str, float]:
    (log,) = inspect_store(path).logs
    unclosed = [segment for segment in log.segments if segment.state != "sealed"]
    return {
        "gigabytes": log.bytes / _GB,
        "segments": len(log.segments),
        "unclosed_megabytes": sum(segment.bytes for segment in unclosed) / 1e6,
    }


def _closed(folder: str, present: list[str]) -> list[str]:
    """Return the files of sealed segments, which opening does not change."""
    if not folder.endswith(f"{_LOG}-0"):
        return []
    (log,) = inspect_store(Path(folder).parent).logs
    sealed = [f"{segment.base_offset:020d}" for segment in log.segments if segment.state == "sealed"]
    return [name for name in present if name.partition(".")[0] in sealed]


def _nothing(path: Path) -> None:
    """Leave the page cache as the killed process has left it."""


def _drop(path: Path) -> None:
    """Drop the store's pages from the page cache, as after a reboot. They are flushed first, or they could not be
    dropped."""
    for file in path.rglob("*"):
        if file.is_file():
            fd = os.open(file, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def _open_s(path: Path) -> float:
    start = time.perf_counter()
    store = timestone.open(path)
    log = store.log(_LOG, create=False)
    log.read(log.start_offset, max_records=1)
    log.read(log.end_offset - 1, max_records=1)
    elapsed_s = time.perf_counter() - start
    store.close()
    return elapsed_s
