"""Appends by the client of a cluster, and a raw copy of bytes beside what a follower does to catch up.

As a script, the process that receives the raw copy."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from timestone_cluster.node.client import ClusterClient

from ..errors import BenchmarkError
from .own_cluster import LOG, Node, OwnCluster

RECORD_BYTES, BATCH_RECORDS, IN_FLIGHT = 1000, 64, 5
"""What Kafka's producer is given, too: its batches have as many bytes, and it sends five of them ahead."""
ENTRY_BYTES = 32
_CHUNK_BYTES = 1 << 20
_WITHIN_S = 120.0
_LOOK_S = 0.002


def append(cluster: OwnCluster, count: int) -> float:
    """Append records in batches, several in flight, and return the seconds until all are acknowledged."""

    async def run() -> float:
        async with cluster.address.client(None) as etcd:
            client = ClusterClient(etcd, cluster.address.keys)
            payloads = [bytes(RECORD_BYTES)] * BATCH_RECORDS
            topics = ["bench/appends"] * BATCH_RECORDS
            batches = iter(range(-(-count // BATCH_RECORDS)))

            async def some() -> None:
                for _ in batches:
                    await client.append_again(LOG, payloads, topics=topics)

            try:
                await client.append_again(LOG, payloads[:1], topics=topics[:1])
                begun_s = time.perf_counter()
                await asyncio.gather(*(some() for _ in range(IN_FLIGHT)))
                return time.perf_counter() - begun_s
            finally:
                await client.close()

    return asyncio.run(run())


def catch_up(cluster: OwnCluster, count: int) -> tuple[int, float]:
    """Kill a follower, append records, start it again; return the bytes that its files grew by, and the seconds in
    which they did. Raises BenchmarkError."""
    follower = cluster.follower()
    follower.kill()
    cluster.leader(in_sync=2)
    append(cluster, count)
    before = stored_bytes(follower)
    follower.start()
    begun_s = now_s = time.perf_counter()
    ends_s, grown = begun_s + _WITHIN_S, 0
    while grown < count * RECORD_BYTES:
        grown, now_s = stored_bytes(follower) - before, time.perf_counter()
        if not grown:
            begun_s = now_s
        if now_s > ends_s:
            raise BenchmarkError(f"a follower has copied {grown:,} bytes in {_WITHIN_S:.0f} s")
        time.sleep(_LOOK_S)
    cluster.leader()
    return grown, now_s - begun_s


def stored_bytes(node: Node) -> int:
    """Return the bytes of records in the log of a node."""
    return sum(path.stat().st_size for path in node.folder.glob(f"{LOG}-0/*.segment"))


def raw_copy(directory: Path, size_bytes: int) -> float:
    """Send as many bytes over a socket to a process that writes them and flushes all the time; return the seconds."""
    source = directory / "raw-source"
    if not source.exists() or source.stat().st_size != size_bytes:
        block = os.urandom(_CHUNK_BYTES)
        with source.open("wb") as file:
            for at in range(0, size_bytes, _CHUNK_BYTES):
                file.write(block[: size_bytes - at])
    copy = directory / "raw-copy"
    with subprocess.Popen(
        [sys.executable, "-m", f"{__package__}.appends", str(copy)], stdout=subprocess.PIPE, process_group=0
    ) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            with source.open("rb") as file, socket.create_connection(("127.0.0.1", port)) as channel:
                begun_s = time.perf_counter()
                channel.sendfile(file)
                channel.shutdown(socket.SHUT_WR)
                channel.recv(1)  # all of it is on the disk
                taken_s = time.perf_counter() - begun_s
        finally:
            process.kill()
    copy.unlink()
    return taken_s


def main(path: str) -> None:
    """Receive one copy: write it, and flush in a thread as often as the disk allows."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        channel, _ = listener.accept()
    ended = threading.Event()
    with channel, Path(path).open("wb", buffering=0) as file:

        def flush() -> None:
            while not ended.is_set():
                os.fdatasync(file.fileno())

        thread = threading.Thread(target=flush)
        thread.start()
        block = bytearray(_CHUNK_BYTES)
        while count := channel.recv_into(block):
            file.write(memoryview(block)[:count])
        ended.set()
        thread.join()
        os.fdatasync(file.fileno())
        channel.sendall(b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
