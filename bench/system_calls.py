"""Ways to hand bytes to the system, side by side: first the one that Timestone takes, then those it does not.

What is sent goes over loopback to another process, which throws it away; processor time is that of the process that
measures, its threads and the system's work for it. docs/performance.md says what came out, and why each was left.
"""

import importlib
import itertools
import multiprocessing
import os
import resource
import select
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from timestone_cli.group import Command

from .environment import probe_environment
from .options import directory_option, json_option, progress_line, quick_option, repeat_option
from .report import print_report
from .working_directory import working_directory

_PIECES = ((100, 100), (64, 1024), (16, 65_536))
"""How many, of how many bytes."""
_RUN_BYTES = 256 * 1024
"""What is read from a file or a socket at once."""
_FILE_BYTES = 64 * 1024 * 1024
_CLIENTS = 200
_PUBACK = b"\x40\x02\x00\x01"
_BATCH = (100_000, 32_000)
"""Bytes of records, and of their index entries."""
_FDATASYNC = 1
"""IORING_FSYNC_DATASYNC of <linux/io_uring.h>."""


@dataclass(frozen=True, slots=True)
class Question:
    """What can be done in several ways."""

    name: str
    calls: int
    """Of each way in a round."""
    ways: Mapping[str, Callable[[], object]]


@dataclass(frozen=True, slots=True)
class Answer:
    """One way; medians of all rounds, in microseconds a call. Ratios are taken within each round."""

    question: str
    way: str
    wall_us: float
    processor_us: float
    wall_ratio: float
    processor_ratio: float


@click.command(cls=Command, epilog="io_uring is measured where the package liburing is installed.\n")
@repeat_option(7, "Rounds.")
@quick_option
@directory_option()
@json_option
def command(repeat: int, quick: bool, directory: Path, as_json: bool) -> None:
    """sendmsg, sendfile, splice and io_uring beside what Timestone does."""
    progress = progress_line()
    with working_directory(directory) as root:
        environment = probe_environment(root)
        answers: list[Answer] = []
        with ExitStack() as leaving:
            ring = leaving.enter_context(_ring())
            for question in (
                *leaving.enter_context(_sending(root)),
                leaving.enter_context(_receiving(root)),
                leaving.enter_context(_acknowledging(ring)),
                leaving.enter_context(_flushing(root, ring)),
            ):
                progress(question.name)
                calls = max(1, question.calls // 10) if quick else question.calls
                answers += _answered(question, calls, repeat)
    progress("")
    result = {"answers": [asdict(answer) for answer in answers]}
    print_report("system-calls", result, environment, [], as_json=as_json)
    if not as_json:
        _print(answers)
        if ring is None:
            print(
                "io_uring was left out: there is no liburing (pip install liburing), or the system does not allow it."
            )


def _answered(question: Question, calls: int, rounds: int) -> list[Answer]:
    taken: dict[str, list[tuple[float, float]]] = {way: [] for way in question.ways}
    for number in range(rounds):
        # Every other round backwards: whatever grows or wears off meets all ways alike.
        for way in list(question.ways)[:: -1 if number % 2 else 1]:
            taken[way].append(_timed(question.ways[way], calls))
    first = taken[next(iter(question.ways))]
    return [
        Answer(
            question.name,
            way,
            *(statistics.median(round_[place] for round_ in times) for place in (0, 1)),
            *(
                statistics.median(
                    mine[place] / max(his[place], 1e-3) for mine, his in zip(times, first, strict=True)
                )
                for place in (0, 1)
            ),
        )
        for way, times in taken.items()
    ]


def _timed(way: Callable[[], object], calls: int) -> tuple[float, float]:
    """Microseconds a call: of the clock, and of processors."""
    processor_s, wall_s = _processor_s(), time.perf_counter()
    for _ in range(calls):
        way()
    wall_s = time.perf_counter() - wall_s
    return wall_s / calls * 1e6, (_processor_s() - processor_s) / calls * 1e6


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@contextmanager
def _sending(root: Path) -> Iterator[list[Question]]:
    """Deliveries: from pieces in memory, and from a file."""
    with _sinks(1) as (sink,), _cached_file(root / "out", _FILE_BYTES) as file:
        offsets = itertools.cycle(range(0, _FILE_BYTES, _RUN_BYTES))
        in_memory = os.urandom(_RUN_BYTES)

        def send_vector(pieces: Sequence[bytes]) -> None:
            sent = sink.sendmsg(pieces)
            if sent < sum(map(len, pieces)):
                sink.sendall(b"".join(pieces)[sent:])

        def send_file() -> None:
            offset, left = next(offsets), _RUN_BYTES
            while left:
                sent = os.sendfile(sink.fileno(), file, offset, left)
                offset, left = offset + sent, left - sent

        questions = [
            Question(
                f"send {count} pieces of {size:,} bytes",
                max(200, 20_000_000 // (count * size)),
                {
                    "join, send": lambda pieces=pieces: sink.sendall(b"".join(pieces)),  # type: ignore[misc]
                    "sendmsg": lambda pieces=pieces: send_vector(pieces),  # type: ignore[misc]
                },
            )
            for count, size in _PIECES
            for pieces in [[os.urandom(size) for _ in range(count)]]
        ]
        from_file = {
            "pread, send": lambda: sink.sendall(os.pread(file, _RUN_BYTES, next(offsets))),
            "sendfile": send_file,
            "send from memory": lambda: sink.sendall(in_memory),
        }
        yield [*questions, Question("send 256 KiB of a cached file", 1000, from_file)]


@contextmanager
def _receiving(root: Path) -> Iterator[Question]:
    """Publishes: from a socket into a file, whether anybody looks at them or not."""
    ours, theirs = _connected()
    source = multiprocessing.get_context("fork").Process(target=_pour, args=(ours, theirs), daemon=True)
    source.start()
    theirs.close()
    read_end, write_end = os.pipe()
    buffer = bytearray(_RUN_BYTES)
    view = memoryview(buffer)
    with ours, _cached_file(root / "in", _FILE_BYTES) as file:
        # Room for a short read behind the last place.
        offsets = itertools.cycle(range(0, _FILE_BYTES - _RUN_BYTES, _RUN_BYTES))

        def copied() -> None:
            left, offset = _RUN_BYTES, next(offsets)
            while left:
                count = ours.recv_into(view, left)
                offset, left = offset + os.pwrite(file, view[:count], offset), left - count

        def spliced() -> None:
            left, offset = _RUN_BYTES, next(offsets)
            while left:
                held = os.splice(ours.fileno(), write_end, left)
                left -= held
                while held:
                    moved = os.splice(read_end, file, held, offset_dst=offset)
                    offset, held = offset + moved, held - moved

        try:
            yield Question(
                "256 KiB from a socket into a cached file",
                400,
                {"recv, pwrite": copied, "splice twice": spliced},
            )
        finally:
            os.close(read_end)
            os.close(write_end)
    source.join()


@contextmanager
def _acknowledging(ring: Any) -> Iterator[Question]:
    """A few bytes to each of many clients."""
    with _sinks(_CLIENTS) as sinks:
        descriptors = [sink.fileno() for sink in sinks]

        def one_by_one() -> None:
            for descriptor in descriptors:
                os.write(descriptor, _PUBACK)

        ways: dict[str, Callable[[], object]] = {"write to each": one_by_one}
        if ring is not None:
            ways["io_uring, at once"] = lambda: ring.write_each(descriptors, _PUBACK)
        yield Question(f"a PUBACK to each of {_CLIENTS} clients", 200, ways)


@contextmanager
def _flushing(root: Path, ring: Any) -> Iterator[Question]:
    """A batch of records and its entries, durable."""
    with (
        _cached_file(root / "segment", _FILE_BYTES) as segment,
        _cached_file(root / "index", _FILE_BYTES // 2) as index,
        ThreadPoolExecutor(1) as helper,
    ):
        batches = itertools.cycle(range(_FILE_BYTES // 2 // _BATCH[0]))
        records, entries = (os.urandom(size) for size in _BATCH)

        def write() -> None:
            number = next(batches)
            os.pwrite(segment, records, number * len(records))
            os.pwrite(index, entries, number * len(entries))

        def side_by_side() -> None:
            write()
            other = helper.submit(os.fdatasync, index)
            os.fdatasync(segment)
            other.result()

        def one_by_one() -> None:
            write()
            os.fdatasync(segment)
            os.fdatasync(index)

        ways: dict[str, Callable[[], object]] = {
            "two threads": side_by_side,
            "one after the other": one_by_one,
        }
        if ring is not None:

            def by_ring() -> None:
                write()
                ring.flush([segment, index])

            ways["io_uring"] = by_ring
        yield Question("fdatasync of 100 and of 32 kB", 100, ways)


class _Ring:
    """An io_uring by way of liburing, as far as it is needed here."""

    def __init__(self, liburing: Any) -> None:
        self._library = liburing
        self._ring = liburing.Ring()
        liburing.io_uring_queue_init(_CLIENTS, self._ring, 0)

    def write_each(self, descriptors: Sequence[int], data: bytes) -> None:
        for descriptor in descriptors:
            self._library.io_uring_prep_write(self._library.io_uring_get_sqe(self._ring), descriptor, data)
        self._done(len(descriptors))

    def flush(self, descriptors: Sequence[int]) -> None:
        for descriptor in descriptors:
            self._library.io_uring_prep_fsync(
                self._library.io_uring_get_sqe(self._ring), descriptor, _FDATASYNC
            )
        self._done(len(descriptors))

    def close(self) -> None:
        self._library.io_uring_queue_exit(self._ring)

    def _done(self, count: int) -> None:
        self._library.io_uring_submit_and_wait(self._ring, count)
        self._library.io_uring_cq_advance(self._ring, count)


@contextmanager
def _ring() -> Iterator[_Ring | None]:
    try:
        ring = _Ring(importlib.import_module("liburing"))
    except (ImportError, OSError):
        yield None
        return
    with closing(ring):
        yield ring


@contextmanager
def _cached_file(path: Path, size_bytes: int) -> Iterator[int]:
    """A file that is in the page cache, and durable."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        block = bytes(1024 * 1024)
        for offset in range(0, size_bytes, len(block)):
            os.pwrite(descriptor, block, offset)
        os.fsync(descriptor)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _sinks(count: int) -> Iterator[list[socket.socket]]:
    """Connections to a process that reads what comes and throws it away."""
    pairs = [_connected() for _ in range(count)]
    drain = multiprocessing.get_context("fork").Process(target=_drain, args=(pairs,), daemon=True)
    drain.start()
    for _, theirs in pairs:
        theirs.close()
    try:
        yield [ours for ours, _ in pairs]
    finally:
        for ours, _ in pairs:
            ours.close()
        drain.join()


def _connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        return ours, listener.accept()[0]


def _drain(pairs: Sequence[tuple[socket.socket, socket.socket]]) -> None:
    for ours, _ in pairs:
        ours.close()
    waiting, buffer = select.epoll(), bytearray(1024 * 1024)
    open_sockets = {theirs.fileno(): theirs for _, theirs in pairs}
    for descriptor in open_sockets:
        waiting.register(descriptor, select.EPOLLIN)
    while open_sockets:
        for descriptor, _ in waiting.poll():
            with suppress(ConnectionError):
                if open_sockets[descriptor].recv_into(buffer):
                    continue
            waiting.unregister(descriptor)
            del open_sockets[descriptor]


def _pour(ours: socket.socket, theirs: socket.socket) -> None:
    ours.close()
    block = bytes(1024 * 1024)
    with suppress(ConnectionError):
        while True:
            theirs.sendall(block)


def _print(answers: Sequence[Answer]) -> None:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("what")
    table.add_column("way")
    for name in ("µs", "of the first", "processor µs", "of the first"):
        table.add_column(name, justify="right")
    before = ""
    for one in answers:
        table.add_row(
            one.question if one.question != before else "",
            one.way,
            f"{one.wall_us:,.1f}",
            f"{one.wall_ratio:.2f}",
            f"{one.processor_us:,.1f}",
            f"{one.processor_ratio:.2f}",
        )
        before = one.question
    Console().print(table)
