"""How fast and how large the answers of a console are, beside a server with many clients, topics and samples."""

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import BenchmarkError
from ..mqtt.load.channel import open_channel
from ..mqtt.load.client_protocols import CLIENT_PROTOCOLS, publish
from ..mqtt.load.connecting import ConnectJob
from ..mqtt.target import Target
from ..mqtt.worker_pool import WorkerPool
from ..options import Progress
from .browsing import Browser, page_bytes
from .large_store import fill
from .pages import SHELL, pages
from .processes import Served, console_process, served, wake_ups

AT_ONCE = 4
"""Calls of the API at a time."""
_BURST = 200
_BURST_TOPIC = b"plant/hall-0/line-0/device-0"
_SEEN_S = 30.0
_FIRST_SAMPLE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Times and size of one call."""

    page: str
    path: str
    p50_ms: float
    p95_ms: float
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What was measured of one console. first_visit_s: from the connection that starts its process to the first page;
    live_s: age of a live figure when it arrives; idle_wake_ups_per_s: of its process while no connection is open."""

    calls: list[Answer]
    page_bytes: dict[str, int]
    first_visit_s: float
    live_s: float
    idle_wake_ups_per_s: float
    rss_bytes: int

    @classmethod
    def none(cls) -> "Answers":
        """Return those of a benchmark that has not asked."""
        return cls(calls=[], page_bytes={}, first_visit_s=0, live_s=0, idle_wake_ups_per_s=0, rss_bytes=0)


class Size(NamedTuple):
    """How much there is, and how often each call is made."""

    clients: int
    topics: int
    samples: int
    calls: int
    idle_s: float


def measure_answers(directory: Path, size: Size, progress: Progress) -> Answers:
    """Fill a store, serve it with clients, and ask its console. Raises BenchmarkError."""
    progress("filling a store")
    with served(directory / "large", "filling", "--console", "none", "--metrics-interval-ms", "100"):
        time.sleep(0.5)  # a sample; the last one comes with the stop
    fill(directory / "large" / "data", size.topics, size.samples)
    with (
        served(directory / "large", "console", "--console", "127.0.0.1:0") as server,
        _connected(server.target, size.clients, progress),
    ):
        assert server.console is not None
        progress("first visit")
        began_s = time.perf_counter()
        with closing(Browser(server.console)) as browser:
            browser.get("/")
            first_visit_s = time.perf_counter() - began_s
            found = pages(time.time_ns() // 1000)
            for asks in found.values():
                for one in (*SHELL, *asks):
                    browser.get(one.path)  # reads dictionaries and indexes once
            sizes = {page: page_bytes(browser, page.split(",")[0], asks) for page, asks in found.items()}
        process = console_process(server.target)
        paths = {one.path: page for page, asks in found.items() for one in asks}
        calls = []
        for path, page in ({one.path: "every page" for one in SHELL} | paths).items():
            progress(f"{page}: {path[:60]}")
            calls.append(_timed(server.console, page, path, size.calls))
        return Answers(
            calls=calls,
            page_bytes=sizes,
            first_visit_s=first_visit_s,
            live_s=_live_s(server),
            idle_wake_ups_per_s=_idle(process, size.idle_s, progress),
            rss_bytes=process.rss_bytes() or 0,
        )


@contextmanager
def _connected(server: Target, count: int, progress: Progress) -> Iterator[None]:
    """Clients that are connected and do nothing while the block runs."""
    progress(f"connecting {count:,} clients")
    job = ConnectJob(
        scheme="mqtt", host=server.host, port=server.port, run=secrets.token_hex(3), clients=count
    )
    with WorkerPool([{"kind": "connect"} | job.to_json()]) as pool:
        failed = pool.run()[0]["failed"]
        if failed:
            raise BenchmarkError(f"{failed} clients were not let in")
        yield


def _timed(address: str, page: str, path: str, count: int) -> Answer:
    """Make a call `count` times, some at a time."""
    times_ms: list[float] = []
    sizes: list[int] = []
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            with closing(Browser(address)) as browser:
                for _ in range(-(-count // AT_ONCE)):
                    began_s = time.perf_counter()
                    _, size = browser.get(path)
                    times_ms.append((time.perf_counter() - began_s) * 1e3)
                    sizes.append(size)
        except (OSError, BenchmarkError) as error:
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise BenchmarkError(f"a call failed: {failures[0]}")
    p50, p95 = np.percentile(times_ms, [50, 95])
    return Answer(page=page, path=path, p50_ms=float(p50), p95_ms=float(p95), size_bytes=max(sizes))


def _live_s(server: Served) -> float:
    """Return the time from a burst of publishes to the event of the stream that has it. Raises BenchmarkError."""
    assert server.console is not None
    protocol = CLIENT_PROTOCOLS["mqtt"]
    with closing(Browser(server.console)) as browser:
        stream = browser.stream()
        for _ in range(2):
            _figures(stream.readline)
        channel = open_channel(protocol, (server.target.host, server.target.port), "bench-burst")
        began_s = time.perf_counter()
        channel.sendall(publish(_BURST_TOPIC, 0, b"burst", 0) * _BURST)
        while time.perf_counter() - began_s < _SEEN_S:
            live = _figures(stream.readline)["live"]
            if live is not None and live["publishes_per_s"] * live["span_s"] >= _BURST / 2:
                channel.close()
                return time.perf_counter() - began_s
    raise BenchmarkError(f"the stream of the console did not show a burst within {_SEEN_S:g} s")


def _figures(readline: Callable[[], bytes]) -> dict[str, Any]:
    """Return the next event `figures` of a stream."""
    while line := readline():
        if line == b"event: figures\n":
            found: dict[str, Any] = json.loads(readline().removeprefix(b"data: "))
            return found
    raise BenchmarkError("the stream of the console ended")


def _idle(process: Target, seconds: float, progress: Progress) -> float:
    """Return how often a second the process wakes up while no connection is open."""
    progress("watching the console without a browser")
    time.sleep(min(6.0, seconds))  # the last connections and threads end
    before = wake_ups(process)
    time.sleep(seconds)
    return (wake_ups(process) - before) / seconds
