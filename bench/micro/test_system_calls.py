"""Ways to hand bytes to the system: in each group first the one that Timestone takes, then those it does not.

What is sent goes over loopback to another process, which throws it away. docs/performance.md has the results, and
the reasons for leaving each. `--benchmark-timer=time.process_time` measures the processor; io_uring needs liburing.
"""

import itertools
import multiprocessing
import os
import select
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

PIECES = ((100, 100), (64, 1024), (16, 65_536))
"""How many, of how many bytes."""
RUN_BYTES = 256 * 1024
"""What is read from a file or a socket at once."""
FILE_BYTES = 64 * 1024 * 1024
CLIENTS = 200
PUBACK = b"\x40\x02\x00\x01"
RECORDS, ENTRIES = 100_000, 32_000
"""Bytes of a batch, and of its index entries."""
FDATASYNC = 1
"""IORING_FSYNC_DATASYNC of <linux/io_uring.h>."""


@pytest.fixture(scope="module")
def sinks() -> Iterator[list[socket.socket]]:
    """Connections to a process that reads what comes and throws it away."""
    with other_ends(CLIENTS, drain) as ends:
        yield ends


@pytest.fixture
def cached_file(tmp_path: Path) -> Iterator[int]:
    """A file that is in the page cache, and durable."""
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT | os.O_EXCL)
    for _ in range(FILE_BYTES >> 20):
        os.write(descriptor, bytes(1 << 20))
    os.fsync(descriptor)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def ring() -> Iterator["Ring"]:
    liburing = pytest.importorskip("liburing")
    try:
        opened = Ring(liburing)
    except OSError as error:
        pytest.skip(f"the system does not allow an io_uring: {error}")
    yield opened
    liburing.io_uring_queue_exit(opened.ring)


@pytest.mark.parametrize("way", ["join and send", "sendmsg"])
@pytest.mark.parametrize(("count", "size"), PIECES)
def test_send_pieces(
    benchmark: BenchmarkFixture, sinks: list[socket.socket], count: int, size: int, way: str
) -> None:
    benchmark.group = f"send {count} pieces of {size:,} bytes"
    pieces, sink = [os.urandom(size) for _ in range(count)], sinks[0]

    def send_vector() -> None:
        sent = sink.sendmsg(pieces)
        if sent < count * size:
            sink.sendall(b"".join(pieces)[sent:])

    benchmark(send_vector if way == "sendmsg" else lambda: sink.sendall(b"".join(pieces)))


@pytest.mark.parametrize("way", ["pread and send", "sendfile", "send from memory"])
@pytest.mark.benchmark(group="send 256 KiB of a cached file")
def test_send_a_file(
    benchmark: BenchmarkFixture, sinks: list[socket.socket], cached_file: int, way: str
) -> None:
    offsets, sink = itertools.cycle(range(0, FILE_BYTES, RUN_BYTES)), sinks[0]
    in_memory = os.urandom(RUN_BYTES)

    def send_file() -> None:
        offset, left = next(offsets), RUN_BYTES
        while left:
            sent = os.sendfile(sink.fileno(), cached_file, offset, left)
            offset, left = offset + sent, left - sent

    ways: dict[str, Callable[[], object]] = {
        "pread and send": lambda: sink.sendall(os.pread(cached_file, RUN_BYTES, next(offsets))),
        "sendfile": send_file,
        "send from memory": lambda: sink.sendall(in_memory),
    }
    benchmark(ways[way])


@pytest.mark.parametrize("way", ["recv and pwrite", "splice twice"])
@pytest.mark.benchmark(group="256 KiB from a socket into a cached file")
def test_receive_into_a_file(benchmark: BenchmarkFixture, cached_file: int, way: str) -> None:
    view = memoryview(bytearray(RUN_BYTES))
    read_end, write_end = os.pipe()
    offsets = itertools.cycle(range(0, FILE_BYTES - RUN_BYTES, RUN_BYTES))

    def copied() -> None:
        left, offset = RUN_BYTES, next(offsets)
        while left:
            count = source.recv_into(view, left)
            offset, left = offset + os.pwrite(cached_file, view[:count], offset), left - count

    def spliced() -> None:
        left, offset = RUN_BYTES, next(offsets)
        while left:
            held = os.splice(source.fileno(), write_end, left)
            left -= held
            while held:
                moved = os.splice(read_end, cached_file, held, offset_dst=offset)
                offset, held = offset + moved, held - moved

    with other_ends(1, pour) as (source,):
        benchmark(spliced if way == "splice twice" else copied)
    os.close(read_end)
    os.close(write_end)


@pytest.mark.benchmark(group="a PUBACK to each of 200 clients")
def test_write_to_each_client(benchmark: BenchmarkFixture, sinks: list[socket.socket]) -> None:
    descriptors = [sink.fileno() for sink in sinks]
    benchmark(lambda: [os.write(descriptor, PUBACK) for descriptor in descriptors])


@pytest.mark.benchmark(group="a PUBACK to each of 200 clients")
def test_write_to_each_client_by_io_uring(
    benchmark: BenchmarkFixture, sinks: list[socket.socket], ring: "Ring"
) -> None:
    descriptors = [sink.fileno() for sink in sinks]
    benchmark(ring.submit, "io_uring_prep_write", [(descriptor, PUBACK) for descriptor in descriptors])


@pytest.mark.parametrize("way", ["two threads", "one after the other"])
@pytest.mark.benchmark(group="fdatasync of 100 and of 32 kB")
def test_flush(benchmark: BenchmarkFixture, cached_file: int, tmp_path: Path, way: str) -> None:
    with flushed_batches(cached_file, tmp_path) as (write, index), ThreadPoolExecutor(1) as helper:

        def side_by_side() -> None:
            write()
            other = helper.submit(os.fdatasync, index)
            os.fdatasync(cached_file)
            other.result()

        def one_by_one() -> None:
            write()
            os.fdatasync(cached_file)
            os.fdatasync(index)

        benchmark(side_by_side if way == "two threads" else one_by_one)


@pytest.mark.benchmark(group="fdatasync of 100 and of 32 kB")
def test_flush_by_io_uring(
    benchmark: BenchmarkFixture, cached_file: int, tmp_path: Path, ring: "Ring"
) -> None:
    with flushed_batches(cached_file, tmp_path) as (write, index):

        def by_ring() -> None:
            write()
            ring.submit("io_uring_prep_fsync", [(cached_file, FDATASYNC), (index, FDATASYNC)])

        benchmark(by_ring)


@contextmanager
def flushed_batches(segment: int, folder: Path) -> Iterator[tuple[Callable[[], None], int]]:
    """Return a function that writes the next batch of records and its entries, and the file of the entries."""
    places = itertools.cycle(range(FILE_BYTES // RECORDS))
    records, entries = os.urandom(RECORDS), os.urandom(ENTRIES)
    index = os.open(folder / "index", os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def write() -> None:
        place = next(places)
        os.pwrite(segment, records, place * RECORDS)
        os.pwrite(index, entries, place * ENTRIES)

    yield write, index
    os.close(index)


class Ring:
    """An io_uring by way of liburing, as far as it is needed here."""

    def __init__(self, liburing: Any) -> None:
        self._library = liburing
        self.ring = liburing.Ring()
        liburing.io_uring_queue_init(CLIENTS, self.ring, 0)

    def submit(self, prepare: str, calls: Sequence[tuple[Any, ...]]) -> None:
        for call in calls:
            getattr(self._library, prepare)(self._library.io_uring_get_sqe(self.ring), *call)
        self._library.io_uring_submit_and_wait(self.ring, len(calls))
        self._library.io_uring_cq_advance(self.ring, len(calls))


Pairs = Sequence[tuple[socket.socket, socket.socket]]


@contextmanager
def other_ends(count: int, target: Callable[[Pairs], None]) -> Iterator[list[socket.socket]]:
    """Connections whose other ends are in a process of their own, which does `target` with them."""
    pairs = []
    for _ in range(count):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            pairs.append((socket.create_connection(listener.getsockname()), listener.accept()[0]))
    process = multiprocessing.get_context("fork").Process(target=target, args=(pairs,), daemon=True)
    process.start()
    for _, theirs in pairs:
        theirs.close()
    try:
        yield [ours for ours, _ in pairs]
    finally:
        for ours, _ in pairs:
            ours.close()
        process.join()


def drain(pairs: Pairs) -> None:
    for ours, _ in pairs:
        ours.close()
    waiting, buffer = select.epoll(), bytearray(1 << 20)
    sockets = {theirs.fileno(): theirs for _, theirs in pairs}
    for descriptor in sockets:
        waiting.register(descriptor, select.EPOLLIN)
    while sockets:
        for descriptor, _ in waiting.poll():
            with suppress(ConnectionError):
                if sockets[descriptor].recv_into(buffer):
                    continue
            waiting.unregister(descriptor)
            del sockets[descriptor]


def pour(pairs: Pairs) -> None:
    ((ours, theirs),) = pairs
    ours.close()
    with suppress(ConnectionError):
        while True:
            theirs.sendall(bytes(1 << 20))
