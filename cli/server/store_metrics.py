"""Metrics of the store and of each log. Looks at the disk: not for the event loop's thread."""

import logging
from collections.abc import Iterator

from timestone.errors import TimestoneError
from timestone.log import Log
from timestone.metrics.metric import Metric, metric
from timestone.reading.named_readers import ReaderLag
from timestone.store import Store

from ..process.version import timestone_version

READER_COUNT = 1000
"""Readers with series of their own: those that are furthest behind."""
_log = logging.getLogger("timestone.metrics")
_FREE = "Free space on the disk; below min_free_bytes appends are refused."
_READER_HELP = {
    "lag": "Offsets that a named reader has not read yet: consumers, Spark queries, shared subscriptions.",
    "missed": "Offsets that retention deleted before the reader read them.",
}
_LOG_HELP = {
    "start_offset": "The oldest stored offset.",
    "end_offset": "The next offset; its rate is the number of records appended a second.",
    "synced_offset": "All records below it are on the disk.",
}


_COUNTED = {
    "appended_records": "Records appended since the start.",
    "appended_bytes": "Bytes of records appended since the start, with their headers.",
}
_WRITES = "Writes to the page cache: one for a group of batches."
_FLUSHES = "Flushes to the disk (fdatasync): all appends before it share one."


def store_metrics(store: Store) -> list[Metric]:
    """Return what the store can state, with full names; the log has a line about the rest."""
    version = Metric(
        "timestone_build", "info", "Version of the server.", [({"version": timestone_version()}, 1)]
    )
    found = [version]
    try:
        found += _of_store(store)
    except (OSError, TimestoneError) as error:
        _log.warning("the metrics of the store are incomplete: %s", error)
    return found


def _of_store(store: Store) -> Iterator[Metric]:
    yield metric("timestone_store_free_bytes", "gauge", _FREE, store.files.free_bytes(store.path))
    logs = [store.log(*log, create=False) for log in store.log_names()]
    for name, help_ in _LOG_HELP.items():
        samples = [(_labels(log), getattr(log, name)) for log in logs]
        yield Metric(f"timestone_log_{name}", "gauge", help_, samples)
    counts = [(_labels(log), log.counts) for log in logs]
    for name, help_ in _COUNTED.items():
        samples = [(labels, getattr(found, name)) for labels, found in counts]
        yield Metric(f"timestone_log_{name}", "counter", help_, samples)
    flushed = [(labels, found.flushes.count) for labels, found in counts]
    yield Metric("timestone_log_flushes", "counter", "Flushes to the disk since the start.", flushed)
    durations = store.durations()
    yield metric("timestone_store_write_seconds", "histogram", _WRITES, durations.writes)
    yield metric("timestone_store_flush_seconds", "histogram", _FLUSHES, durations.flushes)
    yield from _of_readers(logs)


def _of_readers(logs: list[Log]) -> Iterator[Metric]:
    lags = [(log, lag) for log in logs for lag in log.lags()]
    lags.sort(key=lambda one: one[1].lag, reverse=True)
    shown, rest = lags[:READER_COUNT], [lag for _, lag in lags[READER_COUNT:]]
    for name, help_ in _READER_HELP.items():
        samples = [({**_labels(log), "reader": lag.reader.name}, _figure(lag, name)) for log, lag in shown]
        yield Metric(f"timestone_reader_{name}", "gauge", help_, samples)
    yield metric("timestone_readers_left_out", "gauge", _LEFT_OUT, len(rest))


_LEFT_OUT = f"Named readers without a line of their own: only the {READER_COUNT} furthest behind have one."


def _labels(log: Log) -> dict[str, str]:
    return {"log": log.name, "partition": str(log.partition)}


def _figure(lag: ReaderLag, name: str) -> int:
    return int(getattr(lag, name))
