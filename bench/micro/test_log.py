"""Appends, reads and wake-ups of one log."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import timestone
from timestone import Log, Store, WriteBatch
from timestone_bench.engine.workload import Workload

RECORD_BYTES = 100


@pytest.fixture(scope="module")
def log(store: Store) -> Log:
    return filled(store)


@pytest.fixture(scope="module")
def closed_log(directory: Path) -> Iterator[Log]:
    """A log that was closed: nothing of it is in memory."""
    with timestone.open(directory / "closed", ack="written", min_free_bytes=0) as store:
        filled(store)
    with timestone.open(directory / "closed", min_free_bytes=0) as store:
        yield store.log("telemetry")


def filled(store: Store) -> Log:
    log = store.log("telemetry")
    for chunk in Workload(RECORD_BYTES, 100_000).chunks(1000):
        log.append_many(chunk, topic="devices/1/state")
    return log


@pytest.mark.parametrize("count", [1, 64, 1024])
@pytest.mark.benchmark(group="append")
def test_append_many(benchmark: BenchmarkFixture, log: Log, count: int) -> None:
    (chunk,) = Workload(RECORD_BYTES, count).chunks(count)
    benchmark(log.append_many, chunk, topic="devices/1/state")


@pytest.mark.parametrize("count", [1, 64, 1024])
@pytest.mark.benchmark(group="append")
def test_append_batch(benchmark: BenchmarkFixture, log: Log, count: int) -> None:
    (chunk,) = Workload(RECORD_BYTES, count).chunks(count)
    topics = np.full(count, log.topic_id("devices/1/state"), dtype=np.uint32)
    benchmark(lambda: log.append_batch(WriteBatch(chunk, topics)))


@pytest.mark.benchmark(group="read")
def test_record_at_an_offset(benchmark: BenchmarkFixture, closed_log: Log) -> None:
    offsets = itertools.cycle(range(0, 100_000, 7919))
    benchmark(lambda: closed_log.record(next(offsets)))


@pytest.mark.parametrize("count", [1, 64, 1024])
@pytest.mark.benchmark(group="read")
def test_read(benchmark: BenchmarkFixture, closed_log: Log, count: int) -> None:
    offsets = itertools.cycle(range(0, 90_000, 7919))

    def read() -> int:
        return len(closed_log.read(next(offsets), max_records=count))

    assert 0 < benchmark(read) <= count


@pytest.mark.benchmark(group="reader")
def test_append_and_read_at_the_tail(benchmark: BenchmarkFixture, log: Log) -> None:
    reader = log.reader(start=log.end_offset)

    def turn() -> int:
        log.append(b"x" * RECORD_BYTES)
        return len(reader.read())

    assert benchmark(turn) == 1
