"""A compressed log beside a raw one: compressing, bulk reads and single reads of the same telemetry.

All of it comes from the page cache: what a slow disk gains by reading less is not in these figures.
`--benchmark-timer=time.process_time` measures the processor instead of the clock.
"""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import timestone
from timestone import Compression, Log, Store

LEVELS = (1, 3, 6, 9)
LOGS = ("raw", *(f"zstd-{level}" for level in LEVELS))
READ_BYTES = 1 << 20


def telemetry(count: int) -> list[bytes]:
    """Typical messages of devices: a few facts in JSON, half of them noise."""
    source = random.Random(7)
    return [
        b'{"device":"sensor-%d","temperature":%.2f,"humidity":%d,"at":%d}'
        % (source.randrange(1000), source.gauss(20, 3), source.randrange(100), 1_700_000_000_000 + number)
        for number in range(count)
    ]


def stored_bytes(log: Log) -> int:
    return sum(segment.trailer.stored_bytes for segment in log.segment_list.segments if segment.trailer)


@pytest.fixture(scope="module")
def sealed(directory: Path, small: bool) -> Iterator[Store]:
    """A store whose logs, all alike, were closed: sealed, and nothing in memory."""
    records = telemetry(2_000 if small else 200_000)
    with timestone.open(directory / "sealed", ack="written", min_free_bytes=0) as store:
        for name in LOGS:
            store.log(name).append_many(records)
            store.log(name).roll()
    with timestone.open(directory / "sealed", min_free_bytes=0, delete_delay_ms=0) as store:
        store.maintenance.stop()  # which would compress at the same time
        yield store


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.benchmark(group="compress a log")
def test_compress(benchmark: BenchmarkFixture, sealed: Store, level: int) -> None:
    log = sealed.log(f"zstd-{level}")
    log.configure(compression=Compression.ZSTD, compression_level=level)
    benchmark.pedantic(log.apply_compression)  # type: ignore[no-untyped-call] # once: then nothing is left to do
    log.configure(compression=Compression.NONE)
    saved = stored_bytes(sealed.log("raw")) / stored_bytes(log)
    benchmark.extra_info["saved"] = round(saved, 2)
    assert saved > 2


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.benchmark(group="read a whole log")
def test_bulk_read(benchmark: BenchmarkFixture, sealed: Store, name: str) -> None:
    log = sealed.log(name)

    def read() -> int:
        offset = log.start_offset
        while offset < log.end_offset:
            offset = log.read(offset, max_records=READ_BYTES, max_bytes=READ_BYTES).next_offset
        return offset

    assert benchmark(read) == log.end_offset


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.benchmark(group="read one record")
def test_single_read(benchmark: BenchmarkFixture, sealed: Store, name: str) -> None:
    """At random places: a frame of 256 KiB is decoded for one record."""
    log, source = sealed.log(name), random.Random(7)
    offsets = itertools.cycle([source.randrange(log.end_offset) for _ in range(500)])
    benchmark(lambda: log.record(next(offsets)))
