"""A server with its console: where both are, and what their processes use."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ..errors import BenchmarkError
from ..mqtt.servers import timestone_server
from ..mqtt.target import Target

_APPEARS_S = 30.0


class Served(NamedTuple):
    """A server under test."""

    target: Target
    console: str | None
    """HOST:PORT of its console; None without one."""


@contextmanager
def served(directory: Path, name: str, *options: str) -> Iterator[Served]:
    """`timestone serve` on the store `data` in a directory."""
    directory.mkdir(exist_ok=True)
    with timestone_server(directory, name, "written", *options) as target:
        state = json.loads((directory / "ready.json").read_text("utf-8"))
        yield Served(target, state.get("console"))


def console_process(server: Target) -> Target:
    """Return the process of the console that a visit of a server has started. Raises BenchmarkError."""
    until_s = time.monotonic() + _APPEARS_S
    while time.monotonic() < until_s:
        for children in Path(f"/proc/{server.pid}/task").glob("*/children"):
            for pid in children.read_text("ascii").split():
                if b"console" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    return Target("console", "mqtt", "", 0, int(pid))
        time.sleep(0.05)
    raise BenchmarkError("the console of the server did not start")


def wake_ups(process: Target) -> int:
    """Return how often the threads of a process have slept and were woken."""
    total = 0
    for status in Path(f"/proc/{process.pid}/task").glob("*/status"):
        found = re.search(r"^voluntary_ctxt_switches:\s+(\d+)", status.read_text("ascii"), re.MULTILINE)
        total += int(found[1]) if found else 0
    return total
