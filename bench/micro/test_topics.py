"""A log of 100,000 topics beside one of a single topic: appends by id and by name, filtered reads, opening."""

import random
from pathlib import Path

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import timestone
from timestone import Store, WriteBatch
from timestone_bench.engine.workload import Workload

BATCH = 1000
FILTERS = {"one topic": "sites/7/devices/000007/telemetry", "a site": "sites/7/devices/+/#", "all": None}


@pytest.fixture(scope="module")
def names(small: bool) -> list[str]:
    return [
        f"sites/{number % 100}/devices/{number:06d}/telemetry" for number in range(300 if small else 100_000)
    ]


@pytest.fixture(scope="module")
def chunk() -> list[bytes]:
    (chunk,) = Workload(100, BATCH).chunks(BATCH)
    return chunk


@pytest.fixture(scope="module")
def filled(directory: Path, names: list[str], chunk: list[bytes], small: bool) -> Path:
    """A closed store with records under all topics."""
    source = random.Random(7)
    with timestone.open(directory / "filled", ack="written", min_free_bytes=0) as store:
        log = store.log("many")
        ids = np.array([log.topic_id(name) for name in names], dtype=np.uint32)
        for _ in range(2 if small else 500):
            log.append_batch(WriteBatch(chunk, ids[[source.randrange(len(ids)) for _ in chunk]]))
    return directory / "filled"


@pytest.mark.parametrize("topics", ["one", "many"])
@pytest.mark.benchmark(group="append 1,000 records by topic id")
def test_append_by_id(
    benchmark: BenchmarkFixture, store: Store, names: list[str], chunk: list[bytes], topics: str
) -> None:
    log = store.log(topics)
    ids = np.array(
        [log.topic_id(name) for name in (names if topics == "many" else names[:1])], dtype=np.uint32
    )
    source = random.Random(7)
    chosen = [ids[[source.randrange(len(ids)) for _ in chunk]] for _ in range(100)]
    benchmark(lambda: log.append_batch(WriteBatch(chunk, source.choice(chosen))))


@pytest.mark.parametrize("topics", ["one", "many"])
@pytest.mark.benchmark(group="append 1,000 records by topic name")
def test_append_by_name(
    benchmark: BenchmarkFixture, store: Store, names: list[str], chunk: list[bytes], topics: str
) -> None:
    log, source = store.log(topics), random.Random(7)
    known = names if topics == "many" else names[:1]
    for name in known:
        log.topic_id(name)
    chosen = [[source.choice(known) for _ in chunk] for _ in range(100)]
    benchmark(lambda: log.append_many(chunk, topics=source.choice(chosen)))


@pytest.mark.parametrize("topics", FILTERS)
@pytest.mark.benchmark(group="read a log of many topics")
def test_read(benchmark: BenchmarkFixture, filled: Path, topics: str) -> None:
    def scan() -> int:
        count, reader = 0, log.reader(topics=FILTERS[topics])
        while batch := reader.read():
            count += len(batch)
        return count

    with timestone.open(filled, min_free_bytes=0) as store:
        log = store.log("many", create=False)
        assert benchmark(scan) <= log.end_offset


@pytest.mark.benchmark(group="open a log of many topics")
def test_open(benchmark: BenchmarkFixture, filled: Path) -> None:
    benchmark(lambda: timestone.open(filled, min_free_bytes=0).close())
