"""Log of the server's own figures: a sample of all metrics at the start and at each interval, the connections of
clients that began and ended, and each minute the traffic of connections.

Both logs are ordinary ones with a retention, written at level `written`. What cannot be written is left out and
counted: nothing else waits for it."""

import asyncio
import logging
import platform
import re
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from timestone.commit.submission import Submission
from timestone.config import DAY_MS, MIB, Ack, Compression, LogConfig
from timestone.errors import TimestoneError
from timestone.fronts import Administered, Reporting
from timestone.log import Log
from timestone.metrics.records import (
    ACTION,
    ACTIONS_TOPIC,
    EVENT_TOPICS,
    EVENTS_LOG,
    HOUR,
    HOUR_TOPIC,
    METRICS_LOG,
    METRICS_TOPIC,
    TRACE,
    TRACES_TOPIC,
    TRAFFIC,
    TRAFFIC_TOPIC,
    encode_event,
    encode_sample,
    sample_of,
)
from timestone.record import FLAG_QOS_SHIFT
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch

from .client_traffic import ClientTraffic
from .collection import Collection
from .hours import Hours

EVENTS_S = 1.0
"""Time for which events are collected before they are written together."""
EVENT_COUNT = 100
"""Most events of a kind that are written singly in that time; the others are added up in one record."""
TRAFFIC_S = 60.0
"""Time between two looks at the traffic of connections; with short intervals that of `TRAFFIC_SAMPLES` samples."""
TRAFFIC_SAMPLES = 6
_TRAFFIC_STEP = 200
"""Connections whose records are written together."""
_LOGS = {
    name: LogConfig(
        segment_bytes=32 * MIB,
        segment_age_ms=DAY_MS,
        retention_ms=days * DAY_MS,
        retention_bytes=1024 * MIB,
        compression=Compression.ZSTD,
    )
    for name, days in ((METRICS_LOG, 30), (EVENTS_LOG, 7))
}
"""Settings at their creation; `timestone configure` changes them."""
_PARENT = re.compile(rb"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}")
"""User property `traceparent` of a publish, by the W3C's Trace Context."""
_TRACED_RECORDS, _TRACED_BYTES = 64, 1 << 20
"""Part of a batch that is searched for one."""
_QOS_1 = 1 << FLAG_QOS_SHIFT
_log = logging.getLogger("timestone.metrics")


class Events:
    """Events of one kind that are not written yet."""

    def __init__(self, encode: Callable[[Mapping[str, Any]], bytes]) -> None:
        """encode: returns facts as the payload of a record."""
        self._encode = encode
        self._payloads: list[bytes] = []
        self._others: Counter[str] = Counter()
        """Sum of the counts of further events."""
        self._numbers: list[int] = []
        """Connections of further events."""

    def add(self, facts: Mapping[str, Any]) -> None:
        """Add an event of one connection."""
        if len(self._payloads) < EVENT_COUNT:
            self._payloads.append(self._encode({**facts, "connections": 1}))
            return
        self._numbers.append(facts["connection"])
        self._others.update(facts.get("counts", {}))

    def take(self) -> list[bytes]:
        """Return the payloads of records for what was added, and forget it."""
        payloads, numbers, others = self._payloads, self._numbers, self._others
        self._payloads, self._numbers, self._others = [], [], Counter()
        if numbers:
            facts = {"connections": len(numbers), "numbers": numbers, "counts": dict(others)}
            payloads.append(self._encode(facts))
        return payloads


class Figures:
    """Writes samples and events while a server runs."""

    name: ClassVar[str] = "figures"

    def __init__(self, collection: Collection, interval_ms: int, client_count: int = 0) -> None:
        """client_count: most connections whose traffic is recorded at a time."""
        self._collection = collection
        self._interval_ms = interval_ms
        self._started_us = time.time_ns() // 1000
        self._node = platform.node()
        self._logs: dict[str, Log] = {}
        self._events = {name: Events(partial(self._encode, name)) for name in EVENT_TOPICS}
        self._traffic = ClientTraffic(client_count)
        self._hours = Hours()
        self._tracing: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._flush: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Open both logs and begin. A server whose disk has no room for them runs without."""
        store = self._collection.store
        try:
            for name, config in _LOGS.items():
                self._logs[name] = await asyncio.to_thread(store.log, name, config=config)
        except (OSError, TimestoneError) as error:
            _log.warning("the server runs without a log of its figures: %s", error)
            return
        self._collection.watch.start()
        for part in self._collection.parts:
            if isinstance(part, Reporting):
                part.report_to(self.note)
        interval_s = self._interval_ms / 1000
        self._repeat(self._sample, interval_s, first_s=0.0)  # with it, the first interval has a beginning
        if self._traffic.count:
            traffic_s = min(TRAFFIC_S, TRAFFIC_SAMPLES * interval_s)
            self._repeat(self._record_traffic, traffic_s, first_s=traffic_s)

    async def stop(self) -> None:
        """Write the rest: what has ended by now, and the final metrics."""
        if not self._tasks:
            return
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        await asyncio.gather(*self._tracing)
        self._write_events()
        await self._sample()
        self._write_hour(self._hours.take())
        self._collection.watch.stop()

    def note(self, event: str, facts: Mapping[str, Any]) -> None:
        """Add an event; it is written within a second."""
        if event == TRACE:
            task = asyncio.get_running_loop().create_task(self._write_trace(facts))
            self._tracing.add(task)
            task.add_done_callback(self._tracing.discard)
            return
        self._events[event].add(facts)
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_later(EVENTS_S, self._write_events)

    async def record_action(self, facts: Mapping[str, Any]) -> bool:
        """Write an action of an operator; return whether that is done, at level `written`."""
        log = self._logs.get(EVENTS_LOG)
        if log is None:
            return False
        payload = self._encode(ACTION, facts)
        try:
            await asyncio.to_thread(log.append, payload, topic=ACTIONS_TOPIC, ack=Ack.WRITTEN)
        except (OSError, TimestoneError) as error:
            self._skip(1, error)
            return False
        return True

    async def _write_trace(self, facts: Mapping[str, Any]) -> None:
        continued = await asyncio.to_thread(continued_trace, self._collection.store, facts)
        self._write(EVENTS_LOG, TRACES_TOPIC, [self._encode(TRACE, {**facts, **continued})])

    def _encode(self, event: str, facts: Mapping[str, Any]) -> bytes:
        facts = {"started_us": self._started_us, **facts}
        return encode_event(event, facts, time_us=time.time_ns() // 1000, node=self._node)

    def _repeat(self, work: Callable[[], Awaitable[None]], interval_s: float, *, first_s: float) -> None:
        async def run() -> None:
            loop = asyncio.get_running_loop()
            due_s = loop.time() + first_s
            while True:
                await asyncio.sleep(due_s - loop.time())
                await work()
                due_s = max(due_s + interval_s, loop.time())  # none is made up for

        self._tasks.append(asyncio.get_running_loop().create_task(run()))

    async def _record_traffic(self) -> None:
        rows = await self._traffic.rows(
            [part for part in self._collection.parts if isinstance(part, Administered)]
        )
        for first in range(0, len(rows), _TRAFFIC_STEP):
            step = map(partial(self._encode, TRAFFIC), rows[first : first + _TRAFFIC_STEP])
            self._write(EVENTS_LOG, TRAFFIC_TOPIC, await asyncio.to_thread(list, step))

    async def _sample(self) -> None:
        metrics = await self._collection.metrics()
        payload = await asyncio.to_thread(
            lambda: encode_sample(
                sample_of(
                    metrics,
                    time_us=time.time_ns() // 1000,
                    started_us=self._started_us,
                    node=self._node,
                    interval_ms=self._interval_ms,
                )
            )
        )
        self._write(METRICS_LOG, METRICS_TOPIC, [payload])
        self._write_hour(self._hours.add(metrics, time.time_ns() // 1000))

    def _write_hour(self, facts: Mapping[str, Any] | None) -> None:
        if facts is not None:
            self._write(EVENTS_LOG, HOUR_TOPIC, [self._encode(HOUR, facts)])

    def _write_events(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        for name, events in self._events.items():
            if payloads := events.take():
                self._write(EVENTS_LOG, EVENT_TOPICS[name], payloads)

    def _write(self, name: str, topic: str, payloads: list[bytes]) -> None:
        log = self._logs[name]
        try:
            batch = WriteBatch(payloads, log.topic_id(topic), flags=_QOS_1)
            log.submit(batch, ack=Ack.WRITTEN, done=self._written)
        except (OSError, TimestoneError) as error:
            self._skip(len(payloads), error)

    def _written(self, submission: Submission) -> None:
        """Note the outcome. Called by the committer's thread."""
        if submission.error is not None:
            self._skip(submission.write_batch.count, submission.error)

    def _skip(self, count: int, error: Exception) -> None:
        self._collection.skipped += count
        _log.debug("%d records of the server's figures are left out: %s", count, error)


def continued_trace(store: Store, facts: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the trace of a sampled batch, and the span that it continues: those of its first record with a valid user
    property `traceparent` among the first 64; a new trace without one. May read the disk. facts: with log, partition,
    offset and records."""
    first, end = facts["offset"], facts["offset"] + min(facts["records"], _TRACED_RECORDS)
    try:
        log = store.log(facts["log"], facts["partition"], create=False)
        for record in log.read(first, max_records=end - first, max_bytes=_TRACED_BYTES):
            for name, value in record.headers if first <= record.offset < end else ():
                found = _PARENT.fullmatch(value) if name == "traceparent" else None
                if found is not None:
                    return {"trace": found[1].decode(), "parent": found[2].decode()}
    except (TimestoneError, OSError):
        pass  # retention may have taken them
    return {"trace": secrets.token_hex(16), "parent": None}
