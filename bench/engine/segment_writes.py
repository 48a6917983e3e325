"""Rows that write: appends to a log, beside `pwrite` of the same bytes in the same chunks and beside the bare segment.

Each run has fresh files, because a page that is new to the page cache costs many times one that is rewritten. Free
memory differs, too: see `free_memory`.
"""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import timestone
from timestone.config import Ack
from timestone.disk.files import Files
from timestone.index import IndexHeader
from timestone.log import Log
from timestone.writing.segment_writer import SegmentWriter
from timestone.writing.write_batch import WriteBatch

from ..free_memory import touch_free_memory
from ..measurement import Measurement, measure
from .cases import Case
from .workload import Workload

CHUNKS = (1, 64, 1024)
_BATCH = 1024
_SINGLE_CALLS = 50_000
_SYNCED_CALLS = 200
"""Bounds on the calls of a run, so that the slow rows take seconds and not minutes. The rates do not depend on them."""
_RUN_IN_BYTES = 96 << 20
"""The 64 MiB of the tail, and half as much for the appends during a flush."""


def write_cases(workload: Workload, ack: Ack) -> list[Case]:
    """Return the appends at `ack` and those at `synced`, each after its raw row. After a segment that is written
    without a log around it, the same appends are repeated: the cost of a log beyond its files."""
    cases = []
    for chunk in CHUNKS:
        calls = _SYNCED_CALLS if ack is Ack.SYNCED else _SINGLE_CALLS
        some = workload.shortened(calls * chunk)
        raw = f"pwrite {chunk}"
        cases.append(
            Case(name=raw, peer=None, run=partial(_pwrite, some, chunk, sync_each=ack is Ack.SYNCED))
        )
        cases.append(Case(name=f"append {chunk}", peer=raw, run=partial(_append, some, chunk, ack)))
    if ack is Ack.WRITTEN:
        raw = f"segment {_BATCH}"
        cases.append(Case(name=raw, peer=None, run=partial(_segment, workload, _BATCH)))
        cases.append(Case(name=f"log {_BATCH}", peer=raw, run=partial(_append, workload, _BATCH, ack)))
    if ack is not Ack.SYNCED:
        some = workload.shortened(_SYNCED_CALLS * _BATCH)
        raw = f"pwrite {_BATCH} + fdatasync"
        cases.append(Case(name=raw, peer=None, run=partial(_pwrite, some, _BATCH, sync_each=True)))
        cases.append(
            Case(
                name=f"append {_BATCH} synced",
                peer=raw,
                run=partial(_append, some, _BATCH, Ack.SYNCED),
            )
        )
    return cases


def _pwrite(workload: Workload, chunk: int, directory: Path, *, sync_each: bool) -> Measurement:
    touch_free_memory(directory, 2 * workload.size_bytes)
    fd = os.open(directory / "raw", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        calls: list[Callable[[], object]] = []
        position = 0
        for data in workload.joined_chunks(chunk):
            calls.append(partial(_pwrite_synced if sync_each else os.pwrite, fd, data, position))
            position += len(data)
        return measure(
            calls, records=workload.count, size_bytes=workload.size_bytes, sync=partial(os.fdatasync, fd)
        )
    finally:
        os.close(fd)


def _pwrite_synced(fd: int, data: bytes, position: int) -> None:
    os.pwrite(fd, data, position)
    os.fdatasync(fd)


def _segment(workload: Workload, chunk: int, directory: Path) -> Measurement:
    touch_free_memory(directory, 2 * workload.size_bytes)
    writer = SegmentWriter(Files(), directory, IndexHeader(1, 0, 1, 0, bytes(16)))
    try:
        calls = [partial(_write, writer, records) for records in workload.chunks(chunk)]
        return measure(
            calls,
            records=workload.count,
            size_bytes=workload.size_bytes,
            sync=lambda: writer.flush(writer.count),
        )
    finally:
        writer.close()


def _write(writer: SegmentWriter, records: list[bytes]) -> None:
    writer.write_batch_at(WriteBatch(records), time.time_ns() // 1000)


def _append(workload: Workload, chunk: int, ack: Ack, directory: Path) -> Measurement:
    before = workload.shortened(max(1, _RUN_IN_BYTES // workload.record_bytes))
    touch_free_memory(directory, 2 * (workload.size_bytes + before.size_bytes))
    with timestone.open(directory / "store", ack=ack) as store:
        log = store.log("bench")
        _run_in(log, before)
        calls = _append_calls(log, workload, chunk, ack)
        return measure(calls, records=workload.count, size_bytes=workload.size_bytes, sync=log.sync)


def _run_in(log: Log, workload: Workload) -> None:
    """Do the work that only the first appends of a log pay for: files are created durably, and memory is new to the
    process until the tail is full. The raw row has its file, and the page cache its memory, before the clock starts as
    well."""
    for records in workload.chunks(_BATCH):
        log.append_many(records, ack=Ack.WRITTEN)
    log.sync()


def _append_calls(log: Log, workload: Workload, chunk: int, ack: Ack) -> list[Callable[[], object]]:
    if ack is Ack.MEMORY:  # calls that return offsets wait at least for the page cache
        return [partial(_submit, log, records) for records in workload.chunks(chunk)]
    if chunk == 1:
        return [partial(log.append, record) for (record,) in workload.chunks(1)]
    return [partial(log.append_many, records) for records in workload.chunks(chunk)]


def _submit(log: Log, records: list[bytes]) -> None:
    log.submit(WriteBatch(records), ack=Ack.MEMORY)
