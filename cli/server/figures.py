"""Log of the server's own figures: a sample of all metrics at each interval, and the connections of clients that began
and ended.

Both logs are ordinary ones with a retention, written at level `written`. What cannot be written is left out and
counted: nothing else waits for it."""

import asyncio
import logging
import platform
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar

from timestone.commit.submission import Submission
from timestone.config import DAY_MS, MIB, Ack, Compression, LogConfig
from timestone.errors import TimestoneError
from timestone.fronts import Reporting
from timestone.log import Log
from timestone.metrics.records import (
    ACTION,
    ACTIONS_TOPIC,
    EVENT_TOPICS,
    EVENTS_LOG,
    METRICS_LOG,
    METRICS_TOPIC,
    encode_event,
    encode_sample,
    sample_of,
)
from timestone.record import FLAG_QOS_SHIFT
from timestone.writing.write_batch import WriteBatch

from .collection import Collection

EVENTS_S = 1.0
"""Time for which events are collected before they are written together."""
EVENT_COUNT = 100
"""Most events of a kind that are written singly in that time; the others are added up in one record."""
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
_QOS_1 = 1 << FLAG_QOS_SHIFT
_log = logging.getLogger("timestone.metrics")


class Events:
    """Events of one kind that are not written yet."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._payloads: list[bytes] = []
        self._others: Counter[str] = Counter()
        """Sum of the counts of further events, with their number as `connections`."""

    def add(self, facts: Mapping[str, Any], time_us: int, node: str) -> None:
        """Add an event of one connection."""
        if len(self._payloads) < EVENT_COUNT:
            one = {**facts, "connections": 1}
            self._payloads.append(encode_event(self._name, one, time_us=time_us, node=node))
            return
        self._others.update({"connections": 1, **facts.get("counts", {})})

    def take(self, time_us: int, node: str) -> list[bytes]:
        """Return the payloads of records for what was added, and forget it."""
        payloads, others = self._payloads, self._others
        self._payloads, self._others = [], Counter()
        if others:
            facts = {"connections": others.pop("connections"), "counts": dict(others)}
            payloads.append(encode_event(self._name, facts, time_us=time_us, node=node))
        return payloads


class Figures:
    """Writes samples and events while a server runs."""

    name: ClassVar[str] = "figures"

    def __init__(self, collection: Collection, interval_ms: int) -> None:
        self._collection = collection
        self._interval_ms = interval_ms
        self._started_us = time.time_ns() // 1000
        self._node = platform.node()
        self._logs: dict[str, Log] = {}
        self._events = {name: Events(name) for name in EVENT_TOPICS}
        self._sampling: asyncio.Task[None] | None = None
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
        self._sampling = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Write the rest: what has ended by now, and the final metrics."""
        if self._sampling is None:
            return
        self._sampling.cancel()
        with suppress(asyncio.CancelledError):
            await self._sampling
        self._write_events()
        await self._sample()
        self._collection.watch.stop()

    def note(self, event: str, facts: Mapping[str, Any]) -> None:
        """Add an event; it is written within a second."""
        self._events[event].add(facts, time.time_ns() // 1000, self._node)
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_later(EVENTS_S, self._write_events)

    async def record_action(self, facts: Mapping[str, Any]) -> bool:
        """Write an action of an operator; return whether that is done, at level `written`."""
        log = self._logs.get(EVENTS_LOG)
        if log is None:
            return False
        payload = encode_event(ACTION, facts, time_us=time.time_ns() // 1000, node=self._node)
        try:
            await asyncio.to_thread(log.append, payload, topic=ACTIONS_TOPIC, ack=Ack.WRITTEN)
        except (OSError, TimestoneError) as error:
            self._skip(1, error)
            return False
        return True

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            due_s = max(due_s + self._interval_ms / 1000, loop.time())  # none is made up for
            await asyncio.sleep(due_s - loop.time())
            await self._sample()

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

    def _write_events(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        for name, events in self._events.items():
            if payloads := events.take(time.time_ns() // 1000, self._node):
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
