"""What do the compiled kernels save over their twins in Python, call by call?

Pure computing on data in memory, no disk and no socket: what is left of the ratio in a whole run is for the other
benchmarks to say. Both twins take turns on the same arguments, so a busy machine slows them alike. Without the MQTT
front, which is looked up when the benchmark runs, its rows are left out.
"""

import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from timestone.kernel import loops
from timestone.kernel import pure as pure_kernel
from timestone.kernel.entries import ENTRY
from timestone_cli.group import Command
from timestone_cli.output.json_object import print_json

from .environment import probe_environment
from .mqtt.wire import publish
from .options import json_option, progress_line, repeat_option

_REPEAT = 5
_RUN_S = 0.02
"""One run of one twin calls it for about so long."""
_FILE_WIDTH = 120
_SALT, _LIMIT = 0x1234_5678, 1 << 28


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCase:
    """One function on one kind of batch. `call` is given the module that has the function."""

    name: str
    items: int
    pure: str
    native: str
    call: Callable[[Any], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """Nanoseconds an item, medians of the repeats; without the compiled one where it was not built."""

    name: str
    items: int
    pure_ns: float
    native_ns: float | None
    ratio: float | None
    """Of the times in the same repeat, the median."""


@click.command(cls=Command)
@repeat_option(_REPEAT)
@json_option
def command(repeat: int, as_json: bool) -> None:
    """Each function of the compiled kernels beside its twin in Python."""
    progress = progress_line()
    rows = []
    for case in cases():
        progress(case.name)
        rows.append(measure_case(case, repeat))
    progress("")
    environment = probe_environment(Path())
    if as_json:
        fields = ("name", "items", "pure_ns", "native_ns", "ratio")
        print_json(
            {
                "benchmark": "kernels",
                "parameters": {"repeat": repeat},
                "environment": {"processor": environment.processor, "python": environment.python},
                "rows": [{field: getattr(row, field) for field in fields} for row in rows],
            }
        )
        return
    print_rows(rows, [environment.lines()[0], environment.lines()[2]])


def measure_case(case: KernelCase, repeat: int, run_s: float = _RUN_S) -> KernelRow:
    """Time both twins in turn."""
    pure, native = importlib.import_module(case.pure), _module(case.native)
    pure_ns: list[float] = []
    native_ns: list[float] = []
    for _ in range(repeat):
        pure_ns.append(_time_ns(lambda: case.call(pure), run_s) / case.items)
        if native is not None:
            native_ns.append(_time_ns(lambda: case.call(native), run_s) / case.items)
    ratios = [slow / fast for slow, fast in zip(pure_ns, native_ns, strict=False)]
    return KernelRow(
        name=case.name,
        items=case.items,
        pure_ns=statistics.median(pure_ns),
        native_ns=statistics.median(native_ns) if native_ns else None,
        ratio=statistics.median(ratios) if ratios else None,
    )


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _time_ns(call: Callable[[], object], run_s: float) -> float:
    """Nanoseconds a call, over as many calls as fit into `run_s`, at least two."""
    call()
    start, end, count = time.perf_counter_ns(), 0, 0
    while count < 2 or end - start < run_s * 1e9:
        call()
        count += 1
        end = time.perf_counter_ns()
    return (end - start) / count


def cases() -> Iterator[KernelCase]:
    """The rows, engine first."""
    for count, size in ((1, 100), (64, 100), (1024, 100), (1024, 1024)):
        yield from _engine_cases(count, size)
    frame = _module("mqtt_front.codec.frame")
    if frame is None:
        return
    for count, topics in ((1, 1), (500, 1), (500, 500)):
        yield _scan_case(count, topics)
    for count, qos, level in ((1, 0, 4), (500, 0, 4), (500, 1, 4), (500, 0, 5), (500, 1, 5)):
        yield _frame_case(frame, count, qos, level)


def _engine_cases(count: int, size: int) -> Iterator[KernelCase]:
    payloads = [bytes(number % 251 for number in range(size)) for _ in range(count)]
    pieces, data = tuple(payloads), b"".join(payloads)
    _, lengths, _, _ = pure_kernel.gathered(pieces, 0)
    place: dict[str, Any] = {"position": 0, "timestamp_us": 1, "ordinal": 0, "salt_crc": _SALT}
    entries = pure_kernel.fill_entries(pieces, lengths, 1, 0, 0, **place)
    calls: Sequence[tuple[str, Callable[[Any], object]]] = (
        ("gathered", lambda module: module.gathered(pieces, 512)),
        ("fill_entries", lambda module: module.fill_entries(pieces, lengths, 1, 0, 0, **place)),
        ("valid_count", lambda module: module.valid_count(entries, _SALT, 0)),
        ("proven_count", lambda module: module.proven_count(entries, data, 0)),
    )
    for name, call in calls:
        label = f"{name}, {count} x {size} bytes"
        yield KernelCase(
            name=label,
            items=count,
            pure="timestone.kernel.pure",
            native="timestone.kernel._kernel",
            call=call,
        )


def _scan_case(count: int, topics: int) -> KernelCase:
    packets = (
        publish(b"devices/%06d/telemetry" % (number % topics), number + 1, b"x" * 100, 1)
        for number in range(count)
    )
    data = b"".join(packets)
    return KernelCase(
        name=f"scan_publishes, {count} x 100 bytes, QoS 1, {topics} topic{'s' * (topics > 1)}",
        items=count,
        pure="mqtt_front.codec.scan",
        native="mqtt_front.kernel._kernel",
        call=lambda module: module.scan_publishes(data, 0, len(data), 4, _LIMIT),
    )


def _frame_case(frame: ModuleType, count: int, qos: int, level: int) -> KernelCase:
    entries = np.zeros(count, dtype=ENTRY)
    entries["length"], entries["flags"] = 100, qos << 1
    records = frame.Records(
        bytes(100 * count),
        np.arange(count, dtype=np.int64),
        entries["topic"],
        entries["flags"],
        np.arange(count, dtype=np.int64) * 100,
        entries["length"],
    )
    topic = b"devices/000001/telemetry"
    head, block = len(topic).to_bytes(2, "big") + topic, b"\0" if level == 5 else b""
    forms = {0: frame.Form(head, block, qos, False, 0)}
    ids = list(range(1, count + 1)) if qos else []
    return KernelCase(
        name=f"frame_records, {count} x 100 bytes, QoS {qos}, MQTT {'5' if level == 5 else '3.1.1'}",
        items=count,
        pure="mqtt_front.codec.frame",
        native="mqtt_front.kernel._kernel",
        call=lambda module: module.frame_records(records, 0, forms, ids, 0, _LIMIT),
    )


def print_rows(rows: Sequence[KernelRow], head: Sequence[str]) -> None:
    """The table, on standard output."""
    known_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    console = Console(width=None if known_width else _FILE_WIDTH, highlight=False)
    for line in head:
        console.print(line, soft_wrap=True)
    console.print(f"the engine uses the {loops.NAME} kernel; nanoseconds an item, medians")
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("function")
    for title in ("native", "pure Python", "ratio"):
        table.add_column(title, justify="right")
    for row in rows:
        native = "not built" if row.native_ns is None else f"{row.native_ns:,.1f}"
        ratio = "" if row.ratio is None else f"{row.ratio:,.1f}"
        table.add_row(row.name, native, f"{row.pure_ns:,.1f}", ratio)
    console.print(table)
