"""A store as large as the goals of the console: many topics, and a month of samples."""

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from timestone.disk.clock import Clock
from timestone.metrics.records import METRICS_LOG, METRICS_TOPIC, decode_sample, encode_sample
from timestone.store import open_store
from timestone.view import view_store

from ..errors import BenchmarkError

_TOPIC_STEP = 1000
_SAMPLE_STEP = 60
"""Samples with one time of appending: ten minutes."""
STEP_US = 10_000_000
"""Time between two samples."""


class _SetClock(Clock):
    """Clock whose time is set."""

    at_us = 0

    def now_us(self) -> int:
        """Return the time that was set."""
        return self.at_us


def fill(path: Path, topics: int, samples: int) -> None:
    """Append a record to each of `topics` topics, and `samples` samples up to now as this server writes them. The store
    has to have a sample, which they are made from. Raises BenchmarkError."""
    template = _newest_sample(path)
    clock = _SetClock()
    began_us = time.time_ns() // 1000 - samples * STEP_US
    clock.at_us = began_us
    with _no_warnings(), open_store(path, clock=clock, ack="written") as store:
        log = store.log(METRICS_LOG)
        for first in range(0, samples, _SAMPLE_STEP):
            clock.at_us = began_us + first * STEP_US
            steps = range(first, min(first + _SAMPLE_STEP, samples))
            log.append_many([_sample(template, began_us, step) for step in steps], topic=METRICS_TOPIC)
        clock.at_us = time.time_ns() // 1000
        log = store.log("mqtt")
        for first in range(0, topics, _TOPIC_STEP):
            numbers = range(first, min(first + _TOPIC_STEP, topics))
            names = [f"plant/hall-{n % 10}/line-{n // 10 % 100}/device-{n}" for n in numbers]
            log.append_many([b'{"t": %d}' % n for n in numbers], topics=names)


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Log errors only: that the clock goes back is meant."""
    logger = logging.getLogger("timestone")
    usual = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(usual)


def _newest_sample(path: Path) -> dict[str, Any]:
    with view_store(path) as view:
        if (METRICS_LOG, 0) not in view.log_names(server=True):
            raise BenchmarkError(f"the server of {path} has written no sample")
        log = view.log(METRICS_LOG)
        sample = decode_sample(log.record(log.end_offset - 1).payload)
    document: dict[str, Any] = json.loads(encode_sample(sample))
    return document


def _sample(template: dict[str, Any], began_us: int, step: int) -> bytes:
    values = {**template["values"], "timestone_mqtt_publishes_received_total": step * 10_000}
    facts = {"time_us": began_us + step * STEP_US, "started_us": began_us, "values": values}
    return json.dumps({**template, **facts}, separators=(",", ":")).encode()
