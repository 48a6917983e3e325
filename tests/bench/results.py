"""A small throughput result, made without measuring anything."""

import numpy as np

from timestone_bench.engine.cases import Case
from timestone_bench.engine.throughput_result import Result, build_rows
from timestone_bench.environment import Environment
from timestone_bench.measurement import Measurement


def run(elapsed_s: float, *, synced_s: float | None = None, calls: int = 10) -> Measurement:
    """1,000 records of 1,000 bytes in `calls` equal calls."""
    return Measurement(
        records=1000,
        size_bytes=1_000_000,
        elapsed_s=elapsed_s,
        synced_s=synced_s,
        cpu_s=elapsed_s / 2,
        calls_ns=np.full(calls, round(elapsed_s * 1e9 / calls), dtype=np.int64),
    )


def case(name: str, peer: str | None = None) -> Case:
    return Case(name=name, peer=peer, run=lambda directory: run(1.0))


CASES = [case("pwrite 1"), case("append 1", "pwrite 1"), case("pread"), case("read", "pread")]
RUNS = {
    "pwrite 1": [run(0.1, synced_s=0.2), run(0.2, synced_s=0.4), run(0.4, synced_s=0.8)],
    "append 1": [run(0.2, synced_s=0.4), run(0.8, synced_s=1.0), run(0.5, synced_s=0.8)],
    "pread": [run(0.01)] * 3,
    "read": [run(0.02)] * 3,
}
ENVIRONMENT = Environment(
    system="Linux 6",
    processor="Some CPU",
    cpu_count=2,
    memory_bytes=8 << 30,
    load_average=0.5,
    filesystem="ext4",
    device="/dev/x",
    free_bytes=1 << 40,
    fdatasync_median_us=1500.0,
    python="CPython 3.11.7",
    versions={"timestone": "0.1.0"},
    kernel="native",
    mqtt_kernel="native",
)
RESULT = Result(
    parameters={"record_bytes": 1000, "count": 1000, "ack": "written", "repeat": 3},
    environment=ENVIRONMENT,
    warnings=["a warning"],
    rows=build_rows(CASES, RUNS),
)
