"""Acknowledgements of bare processes that do what a replicated message needs and nothing else: a lower bound on this
machine and disk.

A process for the leader and each follower. For all messages that have arrived, the leader writes their bytes into one
file and their entries into another, sends both to the followers, and flushes both files side by side; a follower
writes, flushes and answers; the leader answers when all have. As a script, one of these processes."""

import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

MESSAGE_BYTES, ENTRY_BYTES = 100, 32
_INDEX_BYTES = 1 << 20
"""Written with zeros in advance, as the index of a segment is."""
_WARM = 50
_RECEIVED_BYTES = 256 * 1024


def acknowledgements_us(folder: Path, count: int, followers: int) -> Sequence[float]:
    """Return the microseconds from sending a message to its acknowledgement, one message at a time."""
    with _leader(folder, followers) as channel:
        taken_us = []
        for _ in range(_WARM + count):
            begun_s = time.perf_counter()
            channel.sendall(bytes(MESSAGE_BYTES))
            channel.recv(1)
            taken_us.append(1e6 * (time.perf_counter() - begun_s))
        return taken_us[_WARM:]


def messages_per_s(folder: Path, count: int, followers: int, window: int) -> float:
    """Return how many messages are acknowledged in a second, with so many on their way."""
    with _leader(folder, followers) as channel:
        begun_s = time.perf_counter()
        sent = acknowledged = 0
        while acknowledged < count:
            due = min(count, acknowledged + window) - sent
            channel.sendall(bytes(due * MESSAGE_BYTES))
            sent += due
            acknowledged += len(channel.recv(window))
        return count / (time.perf_counter() - begun_s)


@contextmanager
def _leader(folder: Path, followers: int) -> Iterator[socket.socket]:
    folder.mkdir()
    with ExitStack() as stack:
        ports = [stack.enter_context(_process(folder / f"follower-{number}")) for number in range(followers)]
        port = stack.enter_context(_process(folder / "leader", *ports))
        yield stack.enter_context(_connected(port))


@contextmanager
def _process(path: Path, *followers: int) -> Iterator[int]:
    command = [sys.executable, "-m", f"{__package__}.bare_replication", str(path), *map(str, followers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, process_group=0) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


def _connected(port: int) -> socket.socket:
    channel = socket.create_connection(("127.0.0.1", port))
    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return channel


class _Flusher:
    """Flushes one file in a thread while the caller flushes another."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._wanted, self._done = threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self._wanted.acquire()
            os.fdatasync(self._fd)
            self._done.release()

    def flush_with(self, fd: int) -> None:
        self._wanted.release()
        os.fdatasync(fd)
        self._done.acquire()


def main(path: str, *ports: str) -> None:
    """Take messages from one connection."""
    followers = [_connected(int(port)) for port in ports]
    is_leader = Path(path).name == "leader"
    segment, index = (os.open(f"{path}.{name}", os.O_RDWR | os.O_CREAT) for name in ("segment", "index"))
    os.pwrite(index, bytes(_INDEX_BYTES), 0)
    os.fsync(index)
    flusher = _Flusher(index)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        channel, _ = listener.accept()
    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    unit_bytes = MESSAGE_BYTES if is_leader else MESSAGE_BYTES + ENTRY_BYTES
    count, data = 0, b""
    while arrived := channel.recv(_RECEIVED_BYTES):
        data += arrived
        added = len(data) // unit_bytes
        whole, data = data[: added * unit_bytes], data[added * unit_bytes :]
        os.pwrite(segment, whole[: added * MESSAGE_BYTES], count * MESSAGE_BYTES)
        os.pwrite(index, bytes(added * ENTRY_BYTES), count * ENTRY_BYTES % _INDEX_BYTES)
        for follower in followers:
            follower.sendall(whole + bytes(added * ENTRY_BYTES))
        flusher.flush_with(segment)
        for follower in followers:
            left = added
            while left:
                left -= len(follower.recv(left))
        channel.sendall(bytes(added))
        count += added


def percentiles(taken_us: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile."""
    return statistics.median(taken_us), sorted(taken_us)[len(taken_us) * 99 // 100]


if __name__ == "__main__":
    main(*sys.argv[1:])
