"""The compiled kernels beside their twins in Python, call by call: pure computing on data in memory."""

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from timestone.kernel import pure
from timestone.kernel.entries import ENTRY
from timestone_bench.mqtt.load.client_protocols import publish

pytest.importorskip("mqtt_front")
from mqtt_front.codec import frame

SALT, LIMIT = 0x1234_5678, 1 << 28
ENGINE = ("timestone.kernel._kernel", "timestone.kernel.pure")
SCAN = ("mqtt_front.kernel._kernel", "mqtt_front.codec.scan")
FRAME = ("mqtt_front.kernel._kernel", "mqtt_front.codec.frame")
"""The module of the compiled function, and that of its twin."""

Case = tuple[str, tuple[str, str], Callable[[Any], object]]


def engine_cases(count: int, size: int) -> Iterator[Case]:
    pieces = tuple(bytes(number % 251 for number in range(size)) for _ in range(count))
    data = b"".join(pieces)
    _, lengths, _, _ = pure.gathered(pieces, 0)
    place: dict[str, Any] = {"position": 0, "timestamp_us": 1, "ordinal": 0, "salt_crc": SALT}
    entries = pure.fill_entries(pieces, lengths, 1, 0, 0, **place)
    label = f"{count} x {size} bytes"
    yield f"gathered, {label}", ENGINE, lambda module: module.gathered(pieces, 512)
    yield (
        f"fill_entries, {label}",
        ENGINE,
        lambda module: module.fill_entries(pieces, lengths, 1, 0, 0, **place),
    )
    yield f"valid_count, {label}", ENGINE, lambda module: module.valid_count(entries, SALT, 0)
    yield f"proven_count, {label}", ENGINE, lambda module: module.proven_count(entries, data, 0)


def scan_case(count: int, topics: int) -> Case:
    data = b"".join(
        publish(b"devices/%06d/telemetry" % (number % topics), number + 1, b"x" * 100, 1)
        for number in range(count)
    )
    return (
        f"scan_publishes, {count} x 100 bytes, QoS 1, topics: {topics}",
        SCAN,
        lambda module: module.scan_publishes(data, 0, len(data), 4, LIMIT),
    )


def frame_case(count: int, qos: int, level: int) -> Case:
    entries = np.zeros(count, dtype=ENTRY)
    entries["length"], entries["flags"] = 100, qos << 1
    offsets = np.arange(count, dtype=np.int64)
    records = frame.Records(
        bytes(100 * count), offsets, entries["topic"], entries["flags"], offsets * 100, entries["length"]
    )
    topic = b"devices/000001/telemetry"
    head = len(topic).to_bytes(2, "big") + topic
    forms = {0: frame.Form(head, b"\0" if level == 5 else b"", qos, False, 0)}
    ids = list(range(1, count + 1)) if qos else []
    return (
        f"frame_records, {count} x 100 bytes, QoS {qos}, MQTT {'5' if level == 5 else '3.1.1'}",
        FRAME,
        lambda module: module.frame_records(records, forms, ids, 0, LIMIT),
    )


CASES = [
    *(case for count, size in ((1, 100), (64, 100), (1024, 1024)) for case in engine_cases(count, size)),
    *(scan_case(count, topics) for count, topics in ((1, 1), (500, 1), (500, 500))),
    *(frame_case(*one) for one in ((1, 0, 4), (500, 0, 4), (500, 1, 4), (500, 1, 5))),
]


@pytest.mark.parametrize("kernel", ["compiled", "python"])
@pytest.mark.parametrize(("name", "modules", "call"), CASES, ids=[case[0] for case in CASES])
def test_kernel(
    benchmark: BenchmarkFixture,
    name: str,
    modules: tuple[str, str],
    call: Callable[[Any], object],
    kernel: str,
) -> None:
    benchmark.group = name
    twin = importlib.import_module(modules[1])
    module = pytest.importorskip(modules[0]) if kernel == "compiled" else twin
    assert benchmark(call, module) == call(twin)
