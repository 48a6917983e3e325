"""Resources for very many topics, and for very many logs: memory, descriptors, maps, disk space, and the time to open.

Every figure is of a separate process. The topics have had a record each and are idle; then some of them get one each at
once, like devices that report at the same second. The logs have a record each when their owner is killed, so that every
log has a segment that was not closed. After the open, one log with a deferred seal gets a record, and then the
benchmark waits for the other seals.
"""

import logging
import multiprocessing
import os
import resource
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import click
import numpy as np

import timestone
from timestone import LogConfig, WriteBatch
from timestone_cli.group import Command

from ..environment import probe_environment
from ..errors import BenchmarkError
from ..options import POSITIVE, directory_option, json_option, progress_line
from ..report import print_report
from ..working_directory import working_directory

_LOG = "telemetry"
_PAYLOAD = bytes(100)
_ROUNDS = 10
_FDS_A_LOG = 1
"""Descriptors of a log that is not written to: its topics."""
_FDS_MORE = 256
_WAIT_S = 0.01


@dataclass(frozen=True, slots=True)
class Footprint:
    """Resources of a process beyond those with an empty store."""

    open_s: float
    memory_mb: float
    fds: int
    maps: int
    progress_lines: int
    """How often the log reported the progress of opening."""
    append_ms: float = 0.0
    """Time of one record to each of the active topics, synced: the median."""
    active_memory_mb: float = 0.0
    """The same memory after that, with the segment that is written."""
    first_append_ms: float = 0.0
    """Time of one record, synced, to a log that was served but not sealed yet."""
    sealed_s: float = 0.0
    """Time from the call that opens the store until no seal is deferred."""


@click.command(cls=Command)
@click.option(
    "--topics", "topic_count", metavar="N", type=POSITIVE, default=100_000, help="Topics of one log."
)
@click.option("--active", metavar="N", type=POSITIVE, default=10_000, help="Topics that get records at once.")
@click.option(
    "--logs", "log_count", metavar="N", type=POSITIVE, default=10_000, help="Logs that were not closed."
)
@directory_option()
@json_option
def command(topic_count: int, active: int, log_count: int, directory: Path, as_json: bool) -> None:
    """Resources for 100,000 topics, and for thousands of logs whose owner was killed."""
    progress = progress_line()
    _allow_descriptors(log_count * _FDS_A_LOG + _FDS_MORE)
    with working_directory(directory) as root:
        environment = probe_environment(root)
        progress("an empty store")
        _measured(_fill_topics, root / "empty", 1, killed=False)
        progress(f"{topic_count:,} topics")
        _measured(_fill_topics, root / "topics", topic_count, killed=False)
        topics = _measured(_open, root / "topics", min(active, topic_count), root / "empty")
        topics_bytes = _bytes(root / "topics")
        progress(f"{log_count:,} logs")
        _measured(_fill_logs, root / "logs", log_count, killed=True)
        logs_bytes = _bytes(root / "logs")
        logs = _measured(_open, root / "logs", 0, root / "empty")
    progress("")
    assert topics is not None
    assert logs is not None
    figures = {
        "topics": asdict(topics) | {"count": topic_count, "disk_bytes": topics_bytes},
        "logs": asdict(logs) | {"count": log_count, "disk_bytes": logs_bytes},
    }
    lines = [
        _line(topic_count, "idle topics in one log", topics, topics_bytes),
        _line(log_count, "logs, none closed", logs, logs_bytes),
        f"all {log_count:,} logs sealed after {logs.sealed_s:.1f} s; a synced record to one that was not yet: "
        f"{logs.first_append_ms:.1f} ms",
        f"a record to each of {min(active, topic_count):,} of the topics, synced: "
        f"{topics.append_ms:.0f} ms; {topics.active_memory_mb:.0f} MB of memory then",
    ]
    print_report("scale", figures, environment, lines, as_json=as_json)


def _line(count: int, what: str, found: Footprint, disk_bytes: int) -> str:
    return (
        f"{count:,} {what}: opened in {found.open_s:.2f} s, {found.memory_mb:.0f} MB of memory, "
        f"{found.fds} descriptors, {found.maps} maps, {disk_bytes / count:,.0f} bytes of the disk each, "
        f"{found.progress_lines} lines of progress"
    )


def _allow_descriptors(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
    except (ValueError, OSError):
        raise BenchmarkError(
            f"these logs need {wanted:,} descriptors, the limit of a process is {hard:,}; lower --logs"
        ) from None


def _measured(
    target: Callable[..., None], path: Path, count: int, empty: Path | None = None, *, killed: bool = False
) -> Footprint | None:
    """Run a function in a separate process; return its report, if there is one."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(path, count, empty, sender))
    process.start()
    sender.close()
    try:
        found: Footprint | None = receiver.recv()
    except EOFError:
        found = None
    process.join()
    if process.exitcode != (-signal.SIGKILL if killed else 0):
        raise BenchmarkError(f"{path.name} could not be created or opened: exit code {process.exitcode}")
    return found


def _fill_topics(path: Path, count: int, empty: Path | None, sender: Connection) -> None:
    with timestone.open(path, ack="written", min_free_bytes=0) as store:
        log = store.log(_LOG, config=LogConfig(topic_count=max(count, 1000)))
        ids = np.array([log.topic_id(_topic(number)) for number in range(count)], dtype=np.uint32)
        for first in range(0, count, 4096):
            some = ids[first : first + 4096]
            log.append_batch(WriteBatch([_PAYLOAD] * len(some), some))
    sender.send(None)


def _fill_logs(path: Path, count: int, empty: Path | None, sender: Connection) -> None:
    store = timestone.open(path, ack="written", min_free_bytes=0, sync_interval_ms=10**9)
    for number in range(count):
        log = store.log(f"log{number}")
        log.append(_PAYLOAD, topic=_topic(number))
        log.release()  # of the descriptors: the limit may forbid so many
    os.kill(os.getpid(), signal.SIGKILL)


def _open(path: Path, active: int, empty: Path, sender: Connection) -> None:
    timestone.open(empty, min_free_bytes=0).close()  # allocate what the first store of a process needs
    lines: list[str] = []
    handler = logging.Handler(logging.INFO)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("timestone")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    memory_mb, fds, maps = _taken()
    start = time.perf_counter()
    with timestone.open(path, ack="written", min_free_bytes=0) as store:
        open_s = time.perf_counter() - start
        then_mb, then_fds, then_maps = _taken()
        first_append_ms = _append_to_leftover(store)
        while any(log.has_deferred_seals for log in _logs(store)):
            time.sleep(_WAIT_S)
        sealed_s = time.perf_counter() - start
        times = [_append_to_each(store, active) for _ in range(_ROUNDS if active else 0)]
        found = Footprint(
            open_s,
            then_mb - memory_mb,
            then_fds - fds,
            then_maps - maps,
            sum(line.startswith("opening ") for line in lines),
            statistics.median(times) * 1000 if times else 0.0,
            _taken()[0] - memory_mb,
            first_append_ms,
            sealed_s,
        )
    sender.send(found)


def _logs(store: timestone.Store) -> Iterator[timestone.Log]:
    return (store.log(*log, create=False) for log in store.log_names())


def _append_to_leftover(store: timestone.Store) -> float:
    """Return milliseconds; 0 when all logs are sealed already."""
    waiting = next((log for log in reversed(list(_logs(store))) if log.has_deferred_seals), None)
    start = time.perf_counter()
    if waiting is not None:
        waiting.append(_PAYLOAD, ack="synced")
    return (time.perf_counter() - start) * 1000


def _append_to_each(store: timestone.Store, count: int) -> float:
    log = store.log(_LOG, create=False)
    ids = np.array([log.topic_id(_topic(number)) for number in range(count)], dtype=np.uint32)
    start = time.perf_counter()
    log.append_batch(WriteBatch([_PAYLOAD] * count, ids), ack="synced")
    return time.perf_counter() - start


def _topic(number: int) -> str:
    return f"sites/{number % 100}/devices/{number:06d}/telemetry"


def _taken() -> tuple[float, int, int]:
    """Return resident memory in 10^6 bytes, open descriptors, maps."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    maps = Path("/proc/self/maps").read_text().count("\n")
    return pages * resource.getpagesize() / 1e6, len(os.listdir("/proc/self/fd")), maps


def _bytes(path: Path) -> int:
    """Return the disk space of the files, not their length."""
    return sum(file.stat().st_blocks * 512 for file in path.rglob("*") if file.is_file())
