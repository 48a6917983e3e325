"""History of a server's metrics as steps in time, from samples that it recorded: a table and plots."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.table import Table

from timestone.metrics.histogram import BOUNDS_S
from timestone.metrics.records import Sample

from ..units import format_second
from .tables import simple_table

RATES = {
    "in_per_s": "timestone_mqtt_publishes_received_total",
    "out_per_s": "timestone_mqtt_deliveries_sent_total",
    "bytes_in_per_s": "timestone_mqtt_bytes_received_total",
    "bytes_out_per_s": "timestone_mqtt_bytes_sent_total",
}
GAUGES = {"clients": "timestone_mqtt_sessions_connected"}
PERCENTILES = {
    "acknowledge_p99_s": "timestone_mqtt_acknowledge_seconds",
    "flush_p99_s": "timestone_store_flush_seconds",
}
_HEADINGS = {
    "in_per_s": "in/s",
    "out_per_s": "out/s",
    "bytes_in_per_s": "in B/s",
    "bytes_out_per_s": "out B/s",
    "clients": "clients",
    "acknowledge_p99_s": "ack p99",
    "flush_p99_s": "flush p99",
}
_PERCENT = 0.99
_BARS = "▁▂▃▄▅▆▇█"
_KIB = 1024


class _Change(NamedTuple):
    """Change between two samples, or from the start of the server to its first one."""

    end_us: int
    passed_us: int
    after: Sample
    before: Sample | None
    """None if the counters began at 0 in between."""

    def rise(self, name: str) -> float:
        """Return the rise of a counter."""
        earlier = 0 if self.before is None else self.before.values.get(name, 0)
        return max(0, self.after.values.get(name, 0) - earlier)

    def observed(self, name: str) -> Sequence[int]:
        """Return the new observations of a histogram by bucket; none if it is not there."""
        now = self.after.histograms.get(name)
        if now is None:
            return ()
        old = None if self.before is None else self.before.histograms.get(name)
        return now.counts if old is None else [a - b for a, b in zip(now.counts, old.counts, strict=True)]


def steps(samples: Iterable[Sample], start_us: int, step_us: int, count: int) -> list[dict[str, Any]]:
    """Return `count` steps from a time on: rates, the most of each gauge, percentiles; null without samples.

    A change between two samples counts for the step of the later one. The first sample only begins the first change,
    unless the server started after `start_us`."""
    groups: dict[int, list[_Change]] = {}
    for one in _changes(samples, start_us):
        groups.setdefault(min((one.end_us - start_us) // step_us, count - 1), []).append(one)
    return [_step(start_us + number * step_us, groups.get(number, ())) for number in range(count)]


def _changes(samples: Iterable[Sample], start_us: int) -> Iterable[_Change]:
    before: Sample | None = None
    for one in samples:
        same = before is not None and before.started_us == one.started_us
        since_us = before.time_us if same and before is not None else one.started_us
        if (same or since_us >= start_us) and one.time_us >= start_us:
            yield _Change(one.time_us, one.time_us - since_us, one, before if same else None)
        before = one


def _step(time_us: int, changes: Sequence[_Change]) -> dict[str, Any]:
    passed_s = sum(one.passed_us for one in changes) / 1e6
    found: dict[str, Any] = {"time_us": time_us, "samples": len(changes)}
    for key, name in RATES.items():
        found[key] = sum(one.rise(name) for one in changes) / passed_s if passed_s > 0 else None
    for key, name in GAUGES.items():
        found[key] = max(
            (one.after.values[name] for one in changes if name in one.after.values), default=None
        )
    for key, name in PERCENTILES.items():
        found[key] = _percentile([one.observed(name) for one in changes])
    return found


def _percentile(observed: Iterable[Sequence[int]]) -> float | None:
    """Return the upper bound of the bucket that has the percentile; None without observations."""
    counts = [sum(column) for column in itertools.zip_longest(*observed, fillvalue=0)]
    total, reached = sum(counts), 0
    for bound, count in zip((*BOUNDS_S, float("inf")), counts, strict=False):
        reached += count
        if count > 0 and reached >= total * _PERCENT:
            return bound
    return None


def history_table(found: Sequence[Mapping[str, Any]]) -> Table:
    """Return a line for each step."""
    table = simple_table()
    table.add_column("from", no_wrap=True)
    for heading in _HEADINGS.values():
        table.add_column(heading, justify="right", no_wrap=True)
    for one in found:
        table.add_row(format_second(one["time_us"])[11:], *(_cell(key, one[key]) for key in _HEADINGS))
    return table


def plot(found: Sequence[Mapping[str, Any]], key: str) -> str:
    """Return a line that shows the figure over time, with its highest value. A blank is a step without samples."""
    values = [one[key] for one in found]
    most = max((one for one in values if one is not None), default=0)
    scale = (len(_BARS) - 1) / most if 0 < most < float("inf") else 0
    bars = "".join(" " if one is None else _BARS[round(min(one, most) * scale)] for one in values)
    return f"{_HEADINGS[key]:<9} {bars} most {_cell(key, most)}"


def _cell(key: str, value: float | None) -> str:
    if value is None:
        return "-"
    if key in PERCENTILES:
        return _seconds(value)
    if "bytes" in key:
        return _size(value)
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.1f}"


def _seconds(value: float) -> str:
    if value == float("inf"):
        return f">{BOUNDS_S[-1]:.0f} s"
    return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.3g} ms"


def _size(value: float) -> str:
    for letter in ("", "K", "M"):
        if value < _KIB:
            return f"{value:,.1f}{letter}" if letter else f"{value:,.0f}"
        value /= _KIB
    return f"{value:,.1f}G"
