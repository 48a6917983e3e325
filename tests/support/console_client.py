"""A console over a store in this process, and a client of its API."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from starlette.testclient import TestClient

from timestone.disk.clock import Clock
from timestone.metrics.metric import Metric, by_label, metric
from timestone.metrics.records import METRICS_LOG, METRICS_TOPIC, encode_sample, sample_of
from timestone.store import Store, open_store
from timestone.view import view_store
from timestone_cli.live.away_sessions import AwaySessions
from timestone_cli.live.console import ServerLink
from timestone_console.application import Application
from timestone_console.config import ConsoleConfig
from timestone_console.http.sessions import Sessions
from timestone_console.sources import Sources

ORIGIN = "http://127.0.0.1:9465"


class Console:
    """Console of a store. Made with a session of an operator, unless `login` is false."""

    def __init__(self, store: Path, *, login: bool = True, tables: Any = None, **settings: Any) -> None:
        self.view = view_store(store)
        self.config = ConsoleConfig(**settings)
        self.sessions = Sessions(time.monotonic)
        self.sources = Sources(
            self.view,
            self.config,
            self.sessions,
            server=ServerLink(store),
            away=AwaySessions(self.view),
            tables=tables,
            version="1.2.3",
        )
        self.application = Application(self.sources, self.config)
        self.http = TestClient(self.application, base_url=ORIGIN, raise_server_exceptions=False)
        self.token = ""
        if login:
            found = self.http.post("/api/v1/login", json={"key": self.sessions.new_key()})
            assert found.status_code == 200, found.text
            self.token = found.json()["token"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.http.close()
        self.view.close()

    def get(self, path: str, status: int = 200, **parameters: Any) -> Any:
        """Return the document of a GET below /api/v1; AssertionError for another status."""
        found = self.http.get(f"/api/v1/{path}", params=parameters)
        assert found.status_code == status, found.text
        return found.json()

    def post(self, path: str, body: Any, status: int = 200) -> Any:
        """Return the document of a POST with the token of the session."""
        found = self.http.post(f"/api/v1/{path}", json=body, headers={"X-Timestone-Token": self.token})
        assert found.status_code == status, found.text
        return found.json()


class SetClock(Clock):
    """Clock whose time is set."""

    def __init__(self) -> None:
        self.at_us = 0

    def now_us(self) -> int:
        """Return the time that was set."""
        return self.at_us


def write_samples(
    path: Path,
    count: int,
    *,
    interval_us: int = 10_000_000,
    starts: int = 1,
    rise: int = 100,
    first: int = 0,
    ahead_us: int = 0,
    more: Callable[[int], Metric] | None = None,
) -> None:
    """Append samples of a server up to now, each at its own time: `publishes_received` rises by `rise` in each. starts:
    how often the server has started in that time; first: number of the first sample; ahead_us: how far its clock is
    ahead; more: returns a further metric of a sample, by its number."""
    clock = SetClock()
    with open_store(path, clock=clock) as store:
        now_us = time.time_ns() // 1000 + ahead_us
        _append_samples(store, clock, range(first, first + count), now_us, interval_us, starts, rise, more)


def _append_samples(
    store: Store,
    clock: SetClock,
    numbers: range,
    now_us: int,
    interval_us: int,
    starts: int,
    rise: int,
    more: Callable[[int], Metric] | None,
) -> None:
    log = store.log(METRICS_LOG)
    for number in numbers:
        metrics: list[Metric] = [
            metric("timestone_mqtt_publishes_received", "counter", "Publishes.", number * rise),
            metric("timestone_mqtt_sessions_connected", "gauge", "Sessions.", number % 7),
            metric("timestone_store_free_bytes", "gauge", "Free.", 10**12),
            by_label("timestone_mqtt_dropped_publishes", "Dropped.", "reason", {"quota_exceeded": number}),
            *([more(number)] if more is not None else []),
        ]
        at_us = now_us - (numbers.stop - 1 - number) * interval_us
        sample = sample_of(
            metrics,
            time_us=at_us,
            started_us=1 + (number - numbers.start) * starts // len(numbers),
            node="n",
            interval_ms=interval_us // 1000,
        )
        clock.at_us = at_us
        log.append(encode_sample(sample), topic=METRICS_TOPIC, ack="written")
