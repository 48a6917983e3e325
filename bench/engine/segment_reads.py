"""Rows that read: reads of a log, and `pread` of the same bytes from the same segment files.

All data comes from the page cache; the tail row reads records that the log still has in memory.
"""

import importlib.util
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import timestone
from timestone.config import Ack
from timestone.log import Log

from ..measurement import Measurement, Stopwatch, measure
from .cases import Case
from .workload import Workload

READ_BYTES = 1 << 20
"""Size of one bulk read, of the log and raw."""
_TAIL_BYTES = 32 << 20
_SINGLE_READS = 50_000
_SEED = 7
_LOG = "bench"


class PreparedLog:
    """A store with the workload in one sealed log, for all read rows. It is made once; the rows do not change it."""

    def __init__(self, directory: Path, workload: Workload) -> None:
        self.directory = directory
        self.workload = workload
        with timestone.open(directory, ack=Ack.WRITTEN) as store:
            log = store.log(_LOG)
            for records in workload.chunks(1024):
                log.append_many(records)
        self.segments = sorted(directory.glob(f"{_LOG}-0/*.segment"))

    @contextmanager
    def opened(self) -> Iterator[Log]:
        """Open the log in a new store: its tail is empty, so every read uses the segments."""
        with timestone.open(self.directory) as store:
            yield store.log(_LOG, create=False)

    @contextmanager
    def raw_files(self) -> Iterator[list[int]]:
        """Open the segments as bare file descriptors."""
        fds = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in self.segments]
        try:
            yield fds
        finally:
            for fd in fds:
                os.close(fd)


def read_cases(prepared: PreparedLog) -> list[Case]:
    """Return the reads, each after its raw row. Arrow only where pyarrow is installed."""
    bulk, single = "pread 1 MiB", "pread record"
    cases = [
        Case(name=bulk, peer=None, run=partial(_raw_bulk, prepared)),
        Case(name="bulk read", peer=bulk, run=partial(_bulk, prepared, len)),
        Case(name="bulk read again", peer=bulk, run=partial(_bulk, prepared, len, verified=True)),
    ]
    if importlib.util.find_spec("pyarrow") is not None:
        cases.append(
            Case(name="bulk read to Arrow", peer=bulk, run=partial(_bulk, prepared, timestone.Batch.to_arrow))
        )
    return [
        *cases,
        Case(name="tail read", peer=bulk, run=partial(_tail, prepared.workload)),
        Case(name=single, peer=None, run=partial(_raw_single, prepared)),
        Case(name="single read", peer=single, run=partial(_single, prepared)),
    ]


def _raw_bulk(prepared: PreparedLog, directory: Path) -> Measurement:
    with prepared.raw_files() as fds:
        calls: list[Callable[[], object]] = [
            partial(os.pread, fd, READ_BYTES, position)
            for fd in fds
            for position in range(0, os.fstat(fd).st_size, READ_BYTES)
        ]
        return measure(calls, records=prepared.workload.count, size_bytes=prepared.workload.size_bytes)


def _bulk(
    prepared: PreparedLog,
    use: Callable[[timestone.Batch], object],
    directory: Path,
    *,
    verified: bool = False,
) -> Measurement:
    """Measure bulk reads. `verified`: the process has read all records before, so that no crc is checked any more."""
    with prepared.opened() as log:
        if verified:
            _timed_scan(log, len, prepared.workload)
        return _timed_scan(log, use, prepared.workload)


def _tail(workload: Workload, directory: Path) -> Measurement:
    some = workload.shortened(_TAIL_BYTES // max(workload.record_bytes, 64))
    with timestone.open(directory / "store", ack=Ack.WRITTEN, tail_bytes=4 * _TAIL_BYTES) as store:
        log = store.log(_LOG)
        for records in some.chunks(1024):
            log.append_many(records)
        return _timed_scan(log, len, some)


def _timed_scan(log: Log, use: Callable[[timestone.Batch], object], workload: Workload) -> Measurement:
    """Measure reading a log from start to end in reads of READ_BYTES."""
    scan = _Scan(log, use)
    stopwatch = Stopwatch()
    stopwatch.run_until_done(scan.step)
    assert scan.offset == workload.count, f"read {scan.offset} of {workload.count} records"
    return stopwatch.measurement(records=workload.count, size_bytes=workload.size_bytes)


class _Scan:
    def __init__(self, log: Log, use: Callable[[timestone.Batch], object]) -> None:
        self.offset = 0
        self._log = log
        self._use = use
        self._end = log.end_offset

    def step(self) -> bool:
        """Do one read; return True while there is more."""
        batch = self._log.read(self.offset, max_records=READ_BYTES, max_bytes=READ_BYTES)
        self._use(batch)
        self.offset = batch.next_offset
        return self.offset < self._end


def _offsets(workload: Workload) -> list[int]:
    source = random.Random(_SEED)
    return [source.randrange(workload.count) for _ in range(min(_SINGLE_READS, workload.count))]


def _raw_single(prepared: PreparedLog, directory: Path) -> Measurement:
    size = prepared.workload.record_bytes
    offsets = _offsets(prepared.workload)
    with prepared.raw_files() as fds:
        # Records lie back to back, so the position of each follows from its offset and the bases in the file names.
        bases = [int(path.stem) for path in prepared.segments]
        calls: list[Callable[[], object]] = []
        for offset in offsets:
            segment = max(number for number, base in enumerate(bases) if base <= offset)
            calls.append(partial(os.pread, fds[segment], size, (offset - bases[segment]) * size))
        return measure(calls, records=len(offsets), size_bytes=size * len(offsets))


def _single(prepared: PreparedLog, directory: Path) -> Measurement:
    offsets = _offsets(prepared.workload)
    with prepared.opened() as log:
        calls: list[Callable[[], object]] = [partial(log.record, offset) for offset in offsets]
        return measure(calls, records=len(offsets), size_bytes=prepared.workload.record_bytes * len(offsets))
