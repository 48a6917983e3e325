"""Latencies around Arrow Flight: from an append to its follower, and of a PUBACK of MQTT, alone and beside readers at
full speed. As a script, such a reader: `ADDRESS TICKET`."""

import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

_PAUSE_S = 0.001
_CONNECT = b"\x10\x0f\x00\x04MQTT\x04\x02\x00\x00\x00\x03lat"
_SETTLED_S = 0.3


def follower_s(address: str, log: str, count: int) -> float:
    """Return the median time (seconds) from a durable append of one record to its arrival at a client that follows.

    The ack is `synced`."""
    taken = []
    with fl.connect(f"grpc://{address}") as client:
        asked = json.dumps({"log": log, "from": "latest", "follow": True, "columns": ["offset"]})
        reader = client.do_get(fl.Ticket(asked))
        batch = pa.record_batch([pa.array([b"x"], pa.binary())], names=["value"])
        descriptor = fl.FlightDescriptor.for_command(json.dumps({"log": log, "ack": "synced"}))
        writer, answers = client.do_put(descriptor, batch.schema)
        writer.write_batch(batch)  # the first one also waits for the call to begin
        sent = seen = json.loads(answers.read().to_pybytes())["first"]
        time.sleep(_SETTLED_S)
        for _ in range(count):
            began = time.perf_counter()
            writer.write_batch(batch)
            sent += 1
            while seen < sent:  # the first one may come, too
                seen = reader.read_chunk().data.column("offset")[-1].as_py()
            taken.append(time.perf_counter() - began)
            answers.read()
            time.sleep(_PAUSE_S)
        reader.cancel()
        writer.close()
    return statistics.median(taken)


def puback_s(address: str, count: int) -> float:
    """Return the median time (seconds) from a PUBLISH at QoS 1 to its PUBACK."""
    host, _, port = address.rpartition(":")
    taken = []
    with socket.create_connection((host, int(port))) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.sendall(_CONNECT)
        client.recv(4)
        for number in range(count):
            body = b"\x00\x01t" + (number % 0xFFFF + 1).to_bytes(2, "big") + bytes(100)
            began = time.perf_counter()
            client.sendall(b"\x32" + bytes([len(body)]) + body)
            client.recv(4)
            taken.append(time.perf_counter() - began)
            time.sleep(_PAUSE_S)
    return statistics.median(taken)


@contextmanager
def reading(address: str, ticket: str) -> Iterator[None]:
    """Read at full speed, in a process of its own, within the block."""
    words = [sys.executable, "-m", "timestone_bench.flight.latency", address, ticket]
    with subprocess.Popen(words, stdout=subprocess.PIPE, process_group=0) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(_SETTLED_S)
            yield
        finally:
            process.kill()


def main(address: str, ticket: Any) -> None:
    """Read the same records again and again until the process is killed."""
    client = fl.connect(f"grpc://{address}")
    print(flush=True)
    while True:
        for _ in client.do_get(fl.Ticket(ticket)):
            pass


if __name__ == "__main__":
    main(*sys.argv[1:])
