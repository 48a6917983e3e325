"""Appends and reads through Arrow Flight, beside the same through the library and through MQTT, and beside two bare
Flight servers: one that serves the same batches from memory and stores nothing, one that reads and writes files, and
one that reads and appends to a log.

All kinds run in turn in one run, so that ratios count. Servers are processes of their own, as for a client."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.flight as fl

import timestone
from flight_front.settings import FlightSettings
from timestone.log import Log
from timestone_cli.group import Command

from ..environment import probe_environment
from ..errors import BenchmarkError
from ..mqtt.target import Target
from ..options import POSITIVE, directory_option, json_option, progress_line, quick_option, repeat_option
from ..report import print_report
from ..working_directory import working_directory
from .latency import follower_s, puback_s, reading

_MIB = 1024 * 1024
_LOG = "telemetry"
_TOPIC = "plant/temperature"
_READY_WITHIN_S = 30.0
_MQTT_SHARE = 16
"""MQTT moves a record a packet: it gets this part of the volume, and its rate is compared."""
_PUBACKS = ("puback", "puback beside a flight reader", "puback beside a reader of bare")
_FLIGHT = ("flight", "bare", "files", "log")
_AHEAD = 8
"""Batches of a DoPut that are sent before the first answer is read."""


@dataclass(frozen=True)
class Load:
    """What each kind moves."""

    record_bytes: int
    batch_records: int
    batch_count: int

    @property
    def size_bytes(self) -> int:
        return self.record_bytes * self.batch_records * self.batch_count


@click.command(cls=Command)
@repeat_option(5, "Runs of each kind.")
@click.option("--record-bytes", metavar="N", type=POSITIVE, default=1024, help="Size of a record.")
@click.option("--megabytes", metavar="N", type=POSITIVE, default=256, help="MiB that each kind moves.")
@directory_option()
@quick_option
@json_option
def command(
    repeat: int, record_bytes: int, megabytes: int, directory: Path, quick: bool, as_json: bool
) -> None:
    """Measure Arrow Flight beside the library, MQTT, and bare Flight servers."""
    repeat, megabytes = (1, min(megabytes, 16)) if quick else (repeat, megabytes)
    records = max(1, _MIB // record_bytes)
    load = Load(record_bytes, records, megabytes)
    progress = progress_line()
    with working_directory(directory) as root:
        environment = probe_environment(root)
        with (
            _server(root) as server,
            _bare(load, root) as bare,
            timestone.open(root / "library", ack="written") as store,
        ):
            kinds = _kinds(store.log(_LOG), server, bare, load)
            taken: dict[str, list[float]] = {kind: [] for kind in kinds}
            used: dict[str, list[float]] = {kind: [] for kind in kinds if kind.endswith(_FLIGHT)}
            pids = {"flight": server["pid"], "bare": bare["pid"], "files": bare["pid"], "log": bare["pid"]}
            # In turn; the first round warms caches and connections.
            for number in range(repeat + 1):
                progress(f"round {number + 1} of {repeat + 1}")
                for kind, run in kinds.items():
                    pid = pids.get(kind.split()[1])
                    began, before_s = time.perf_counter(), _processor_s(pid)
                    size_bytes = run()
                    if number:
                        taken[kind].append(size_bytes / (time.perf_counter() - began) / 1e6)
                        if pid is not None:
                            used[kind].append(1e3 * (_processor_s(pid) - before_s) / (size_bytes / _MIB))
            latencies = _latencies(server, bare["address"], load, repeat, quick=quick)
    progress("")
    rates = {kind: statistics.median(found) for kind, found in taken.items()}
    costs = {kind: statistics.median(found) for kind, found in used.items()}
    ratios = {
        f"{what} {kind}": statistics.median(
            mine / other for mine, other in zip(taken[f"{what} flight"], taken[f"{what} {kind}"], strict=True)
        )
        for what in ("read", "append")
        for kind in ("bare", "files", "log", "library", "mqtt")
    }
    result = {
        "megabytes_per_s": rates,
        "flight_divided_by": ratios,
        "processor_ms_per_mib": costs,
        "latency_us": latencies,
        "record_bytes": record_bytes,
    }
    print_report("flight", result, environment, _lines(rates, ratios, costs, latencies), as_json=as_json)


def _latencies(
    server: Mapping[str, Any], bare: str, load: Load, repeat: int, *, quick: bool
) -> dict[str, float]:
    """Return medians in microseconds. Those of MQTT in turn."""
    count = 100 if quick else 2000
    end = load.batch_records * load.batch_count
    taken: dict[str, list[float]] = {name: [] for name in _PUBACKS}
    for _ in range(repeat):
        taken[_PUBACKS[0]].append(puback_s(server["mqtt"], count))
        with reading(server["flight"], json.dumps({"log": _LOG, "to": end})):
            taken[_PUBACKS[1]].append(puback_s(server["mqtt"], count))
        with reading(bare, f"bare {load.batch_count}"):
            taken[_PUBACKS[2]].append(puback_s(server["mqtt"], count))
    found = {name: 1e6 * statistics.median(some) for name, some in taken.items()}
    return {"append to follower": 1e6 * follower_s(server["flight"], _LOG, count // 4), **found}


def _lines(
    rates: Mapping[str, float],
    ratios: Mapping[str, float],
    costs: Mapping[str, float],
    latencies: Mapping[str, float],
) -> Iterator[str]:
    for kind, rate in rates.items():
        ratio = f"flight / this = {ratios[kind]:.2f}" if kind in ratios else ""
        cost = f"processor {costs[kind]:5.2f} ms/MiB" if kind in costs else ""
        yield f"{kind:14} {rate:6,.0f} MB/s  {ratio:21} {cost}".rstrip()
    for name, latency_us in latencies.items():
        yield f"{name:34} {latency_us:8,.0f} µs p50"


def _kinds(
    library: Log, server: Mapping[str, Any], bare: Mapping[str, Any], load: Load
) -> dict[str, Callable[[], int]]:
    """Return what is measured: each moves bytes and returns how many."""
    client, plain = fl.connect(f"grpc://{server['flight']}"), fl.connect(f"grpc://{bare['address']}")
    sent = _sent_records(load) * load.record_bytes  # of a batch, about as many as of the front
    values = pa.array([bytes(load.record_bytes)] * load.batch_records, pa.binary())
    batch = pa.record_batch([values, pa.array([_TOPIC] * load.batch_records)], names=["value", "topic"])
    payloads = [bytes(load.record_bytes)] * load.batch_records
    descriptor = fl.FlightDescriptor.for_command(json.dumps({"log": _LOG, "ack": "written"}))
    host, _, port = server["mqtt"].rpartition(":")
    few = Load(load.record_bytes, load.batch_records, max(1, load.batch_count // _MQTT_SHARE))
    _act(client, "create-log", log=_LOG)

    def append_library() -> int:
        for _ in range(load.batch_count):
            library.append_many(payloads, topic=_TOPIC)
        return load.size_bytes

    def read_library() -> int:
        end, at, size_bytes = library.end_offset, 0, 0
        while at < end and size_bytes < load.size_bytes:
            found = library.read(at)
            size_bytes += found.to_arrow().column("value").nbytes
            at = found.next_offset
        return size_bytes

    def read_flight() -> int:
        end = load.batch_records * load.batch_count
        return _read(client, json.dumps({"log": _LOG, "to": end}).encode())

    def mqtt(*words: str, lines: bytes | None = None) -> None:
        command = [sys.executable, "-m", "timestone_cli", *words, "-h", host, "-p", port]
        subprocess.run(command, input=lines, stdout=subprocess.DEVNULL, check=True)

    def append_mqtt() -> int:
        count = few.batch_records * few.batch_count
        line = b"x" * load.record_bytes + b"\n"
        mqtt("pub", "-t", _TOPIC, "-q", "1", "-l", lines=line * count)
        return few.size_bytes

    def read_mqtt() -> int:
        count = few.batch_records * few.batch_count
        mqtt("sub", "-t", f"$stream/mqtt/@earliest/{_TOPIC}", "-C", str(count))
        return few.size_bytes

    return {
        "append library": append_library,
        "append flight": lambda: _append(client, descriptor, batch, load),
        "append bare": lambda: _append(plain, fl.FlightDescriptor.for_command("bare"), batch, load),
        "append files": lambda: _append(plain, fl.FlightDescriptor.for_command("files"), batch, load),
        "append log": lambda: _append(plain, fl.FlightDescriptor.for_command("log"), batch, load),
        "append mqtt": append_mqtt,
        "read library": read_library,
        "read flight": read_flight,
        "read bare": lambda: _read(plain, b"bare %d" % (load.size_bytes // sent)),
        "read files": lambda: _read(plain, b"files %d" % (load.size_bytes // sent)),
        "read log": lambda: _read(plain, b"log %d" % (load.size_bytes // sent)),
        "read mqtt": read_mqtt,
    }


def _append(client: Any, descriptor: Any, batch: pa.RecordBatch, load: Load) -> int:
    writer, answers = client.do_put(descriptor, batch.schema)
    for number in range(load.batch_count):
        writer.write_batch(batch)
        if number >= _AHEAD:
            answers.read()
    writer.done_writing()
    while answers.read() is not None:
        pass
    writer.close()
    return load.size_bytes


def _read(client: Any, ticket: bytes) -> int:
    size_bytes = 0
    for chunk in client.do_get(fl.Ticket(ticket)):
        size_bytes += chunk.data.column("value").nbytes
    return size_bytes


def _sent_records(load: Load) -> int:
    """Return how many records of a load the front sends in a batch."""
    return max(1, FlightSettings().batch_bytes // load.record_bytes)


def _processor_s(pid: int | None) -> float:
    """Return the processor time of a process and its children; 0 without one."""
    if pid is None:
        return 0.0
    pids = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        pids += map(int, children.read_text("ascii").split())
    return sum(Target("", "", "", 0, each).cpu_s() or 0.0 for each in pids)


def _act(client: Any, kind: str, **values: Any) -> None:
    list(client.do_action(fl.Action(kind, json.dumps(values).encode())))


@contextmanager
def _server(root: Path) -> Iterator[dict[str, Any]]:
    """Run `timestone serve` with both fronts; yield their addresses and the process id."""
    ready = root / "ready.json"
    words = ["serve", "--mqtt", "127.0.0.1:0", "--flight", "127.0.0.1:0", "--ready-file", str(ready)]
    words += ["--log-level", "error", "--ack", "written", "--data", str(root / "data")]
    with _process([sys.executable, "-m", "timestone_cli", *words], subprocess.DEVNULL) as process:
        deadline = time.perf_counter() + _READY_WITHIN_S
        while not ready.exists():
            if process.poll() is not None or time.perf_counter() > deadline:
                raise BenchmarkError("the server did not start")
            time.sleep(0.01)
        fronts = json.loads(ready.read_text())["fronts"]
        yield {"pid": process.pid, **{name: fronts[name]["address"] for name in ("mqtt", "flight")}}


@contextmanager
def _bare(load: Load, root: Path) -> Iterator[dict[str, Any]]:
    words = [sys.executable, "-m", "timestone_bench.flight.bare_server"]
    words += [str(_sent_records(load)), str(load.record_bytes), str(root)]
    with _process(words, subprocess.PIPE) as process:
        assert process.stdout is not None
        yield {"pid": process.pid, "address": f"127.0.0.1:{int(process.stdout.readline())}"}


@contextmanager
def _process(words: list[str], output: int) -> "Iterator[subprocess.Popen[bytes]]":
    with subprocess.Popen(words, stdout=output, process_group=0) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            process.wait()
