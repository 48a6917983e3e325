"""Conditions of a server that need attention: one table for the alert rules of Prometheus, the page of alerts and the
documentation. A check reads samples, so it also works on a stopped store and for any time in the past."""

import re
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from timestone.metrics.records import Sample

from .samples import Change, Samples, percentile, total

MINUTE_S = 60
_DAY_S = 24 * 3600
_UNITS = ((_DAY_S, "days"), (3600, "hours"), (MINUTE_S, "minutes"))
_LEAST_FREE_BYTES = 1e9
LEAST_TREND_S = 600.0
"""Shorter changes of the disk say nothing about the next day."""
_DOWN_S = 60.0
_LABELS = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_BACK_STEPS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 360)
"""Minutes back at which a condition that holds now is looked for."""


class Window:
    """Samples up to a moment."""

    def __init__(self, samples: Samples, end_us: int) -> None:
        self._samples = samples
        self.end_us = end_us
        found = samples.between(end_us - 2 * MINUTE_S * 1_000_000, end_us, 20)
        self.newest: Sample | None = found[-1] if found else None

    def change(self, span_s: float) -> Change | None:
        """Return the change over the span up to the moment, within one start of the server; None without two
        samples."""
        newest = self.newest
        if newest is None:
            return None
        found = self._samples.between(self.end_us - int(span_s * 1e6), self.end_us, 12)
        same = [one for one in found if one.started_us == newest.started_us and one.time_us < newest.time_us]
        return Change(same[0], newest) if same else None


class Found(NamedTuple):
    """One thing for which a condition holds: in words, with its figure."""

    text: str
    value: float | None


Check = Callable[[Window], Sequence[Found]]


class Condition(NamedTuple):
    """Condition with its rule for Prometheus and its own check."""

    name: str
    severity: str
    when: str
    """In the table of the documentation."""
    then: str
    """What to do, in Markdown."""
    docs: str
    """Page and section of the documentation."""
    limit: float | None
    unit: str
    expression: str
    """In the language of Prometheus."""
    for_: str | None
    """How long it has to hold there."""
    summary: str
    check: Check


class Finding(NamedTuple):
    """Condition as of now."""

    name: str
    severity: str
    when: str
    then: str
    docs: str
    limit: float | None
    unit: str
    is_firing: bool
    is_known: bool
    """Whether there are samples to tell."""
    value: float | None
    text: str
    since_us: int | None
    """Earliest moment of the last six hours from which on it holds."""


def findings(samples: Samples, now_us: int | None = None) -> list[Finding]:
    """Return each condition with its state."""
    end_us = time.time_ns() // 1000 if now_us is None else now_us
    window = Window(samples, end_us)
    newest = samples.last()
    found = []
    for one in CONDITIONS:
        is_down = one.name == "TimestoneDown"
        holds = list(one.check(window))
        found.append(
            Finding(
                *one[:7],
                is_firing=bool(holds),
                is_known=bool(newest) if is_down else window.newest is not None,
                value=holds[0].value if holds else None,
                text="; ".join(each.text for each in holds[:5]) or one.when,
                since_us=_since(one, samples, end_us) if holds else None,
            )
        )
    return found


def _since(one: Condition, samples: Samples, end_us: int) -> int:
    """Return the earliest moment from which on a condition holds at each step back."""
    since_us = end_us
    if one.name == "TimestoneDown":
        newest = samples.last()
        return newest[-1].time_us if newest else end_us
    for minutes in _BACK_STEPS:
        at_us = end_us - minutes * MINUTE_S * 1_000_000
        if not one.check(Window(samples, at_us)):
            break
        since_us = at_us
    return since_us


def _down(window: Window) -> list[Found]:
    newest = window.newest
    interval_s = newest.interval_ms / 1000 if newest is not None else 0.0
    age_s = (window.end_us - newest.time_us) / 1e6 if newest is not None else None
    if age_s is None:
        return [Found("the server has recorded nothing for two minutes", None)]
    if age_s > max(_DOWN_S, 3 * interval_s):
        return [Found(f"the server has recorded nothing for {_long(age_s)}", age_s)]
    return []


def _long(seconds: float) -> str:
    """Return a time in its largest unit that is there twice."""
    unit_s, name = next((one for one in _UNITS if seconds >= 2 * one[0]), (1, "s"))
    return f"{seconds / unit_s:.0f} {name}"


def _disk(window: Window) -> list[Found]:
    free = None if window.newest is None else total(window.newest, "timestone_store_free_bytes")
    if free is None:
        return []
    if free < _LEAST_FREE_BYTES:
        return [Found(f"the disk has {free / 1e6:.0f} MB left", free)]
    change = window.change(6 * 3600)
    before = None if change is None else total(change.before, "timestone_store_free_bytes")
    if change is None or before is None or before <= free or change.passed_s < LEAST_TREND_S:
        return []
    left_s = free / ((before - free) / change.passed_s)
    return [Found(f"the disk will be full in {left_s / 3600:.0f} h", free)] if left_s < _DAY_S else []


def _rising(name: str, span_s: int, limit: float, text: str, window: Window) -> list[Found]:
    """Check the rise of each series of a counter."""
    change = window.change(span_s)
    if change is None:
        return []
    found = []
    for key in change.after.values:
        if key == name or key.startswith(name + "{"):
            rise = change.rise(key)
            if rise is not None and rise > limit:
                found.append(Found(text.format(rise=rise, minutes=span_s // MINUTE_S, **_labels(key)), rise))
    return sorted(found, key=lambda one: -(one.value or 0))


def _behind(window: Window) -> list[Found]:
    change = window.change(30 * MINUTE_S)
    if change is None:
        return []
    found = []
    for key, lag in change.after.values.items():
        if (
            key.startswith("timestone_reader_lag{")
            and lag > 10_000
            and lag > change.before.values.get(key, lag)
        ):
            labels = _labels(key)
            found.append(Found(f"reader {labels['reader']} of log {labels['log']} is {lag:,.0f} behind", lag))
    return sorted(found, key=lambda one: -(one.value or 0))


def _lasting(name: str, span_s: int, text: str, window: Window) -> list[Found]:
    """Check that a gauge has not been 0 at both ends of the span up to the moment."""
    change = window.change(span_s + MINUTE_S)
    if change is None or change.passed_s < span_s:
        return []
    before, now = (total(one, name) or 0.0 for one in (change.before, change.after))
    return [Found(text.format(now=now), now)] if before and now else []


def _slow(name: str, limit_s: float, text: str, window: Window) -> list[Found]:
    change = window.change(5 * MINUTE_S)
    counts = [] if change is None else change.observed(name)
    p99_s = percentile(counts, 0.99)
    if p99_s is None:
        p99_s = float("inf") if sum(counts) else 0.0
    # A bucket of powers of two is at most twice what was measured.
    return [Found(text.format(p99_s=p99_s), p99_s)] if p99_s / 2 >= limit_s else []


def _labels(key: str) -> dict[str, str]:
    return dict(_LABELS.findall(key))


CONDITIONS: tuple[Condition, ...] = (
    Condition(
        "TimestoneDown",
        "critical",
        "the server does not answer for a minute",
        "[operations.md](operations.md#when-something-is-wrong)",
        "operations.md#when-something-is-wrong",
        _DOWN_S,
        "seconds",
        'up{job="timestone"} == 0',
        "1m",
        "{{ $labels.instance }} does not answer",
        _down,
    ),
    Condition(
        "TimestoneDiskFull",
        "critical",
        "the disk has less than 1 GB, or will be full in a day at the rate of the last six hours",
        "[free some space](operations.md#when-the-disk-is-full)",
        "operations.md#when-the-disk-is-full",
        _LEAST_FREE_BYTES,
        "bytes",
        "predict_linear(timestone_store_free_bytes[6h], 24 * 3600) < 0 or timestone_store_free_bytes < 1e9",
        "10m",
        "the disk of {{ $labels.instance }} is full or will be within a day",
        _disk,
    ),
    Condition(
        "TimestonePublishesDropped",
        "warning",
        "publishes are refused or cannot be stored; the label `reason` is that of MQTT 5",
        "the log has a line for each client",
        "monitoring.md#rules-alerts-and-a-dashboard",
        0,
        "publishes",
        "sum by (instance, reason) (rate(timestone_mqtt_dropped_publishes_total[5m])) > 0",
        "1m",
        "{{ $labels.instance }} drops publishes: {{ $labels.reason }}",
        partial(
            _rising,
            "timestone_mqtt_dropped_publishes_total",
            5 * MINUTE_S,
            0,
            "{rise:,.0f} publishes were dropped in {minutes} minutes: {reason}",
        ),
    ),
    Condition(
        "TimestoneReaderBehind",
        "warning",
        "a named reader is more than 10,000 offsets behind, and its lag grows for an hour",
        "check the consumer",
        "monitoring.md#rules-alerts-and-a-dashboard",
        10_000,
        "offsets",
        "delta(timestone_reader_lag[30m]) > 0 and timestone_reader_lag > 10000",
        "30m",
        "reader {{ $labels.reader }} of log {{ $labels.log }} falls behind",
        _behind,
    ),
    Condition(
        "TimestoneReaderMissedRecords",
        "critical",
        "retention deleted records before a named reader read them",
        "[a longer retention](operations.md#changing-how-long-records-are-kept), or a [pin](reference.md#pins)",
        "operations.md#changing-how-long-records-are-kept",
        0,
        "offsets",
        "increase(timestone_reader_missed[10m]) > 0",
        None,
        "retention deleted records of log {{ $labels.log }} that {{ $labels.reader }} has not read",
        partial(
            _rising,
            "timestone_reader_missed",
            10 * MINUTE_S,
            0,
            "{reader} of log {log} missed {rise:,.0f} offsets in {minutes} minutes",
        ),
    ),
    Condition(
        "TimestoneAcknowledgesSlowly",
        "warning",
        "1 of 100 publishes waits longer than a second for its acknowledgement",
        "compare with the next two: the disk, or the processor",
        "monitoring.md#rules-alerts-and-a-dashboard",
        1.0,
        "seconds",
        "histogram_quantile(0.99, sum by (instance, le) (rate(timestone_mqtt_acknowledge_seconds_bucket[5m]))) > 1",
        "5m",
        "1 of 100 publishes waits for more than a second on {{ $labels.instance }}",
        partial(
            _slow,
            "timestone_mqtt_acknowledge_seconds",
            1.0,
            "1 of 100 publishes waits for up to {p99_s:.3g} s",
        ),
    ),
    Condition(
        "TimestoneFlushesSlowly",
        "warning",
        "1 of 100 flushes takes longer than half a second",
        "a faster disk, or fewer publishes",
        "monitoring.md#rules-alerts-and-a-dashboard",
        0.5,
        "seconds",
        "histogram_quantile(0.99, sum by (instance, le) (rate(timestone_store_flush_seconds_bucket[5m]))) > 0.5",
        "5m",
        "1 of 100 flushes takes more than half a second on {{ $labels.instance }}: the disk is slow",
        partial(_slow, "timestone_store_flush_seconds", 0.5, "1 of 100 flushes takes up to {p99_s:.3g} s"),
    ),
    Condition(
        "TimestoneLoopLate",
        "warning",
        "the event loop is late by a quarter of a second",
        "more processor for the server",
        "monitoring.md#rules-alerts-and-a-dashboard",
        0.25,
        "seconds",
        "histogram_quantile(0.99, sum by (instance, le) (rate(timestone_loop_lateness_seconds_bucket[5m]))) > 0.25",
        "5m",
        "the event loop of {{ $labels.instance }} is late: the processor is too slow or shared",
        partial(
            _slow, "timestone_loop_lateness_seconds", 0.25, "the event loop is late by up to {p99_s:.3g} s"
        ),
    ),
    Condition(
        "TimestoneLoginsRefused",
        "warning",
        "more than 20 failed logins in ten minutes",
        "[security.md](security.md#passwords)",
        "security.md#passwords",
        20,
        "logins",
        "increase(timestone_mqtt_logins_refused_total[10m]) > 20",
        None,
        "a client tries passwords on {{ $labels.instance }}",
        partial(
            _rising,
            "timestone_mqtt_logins_refused_total",
            10 * MINUTE_S,
            20,
            "{rise:,.0f} logins failed in {minutes} minutes",
        ),
    ),
    Condition(
        "TimestoneConnectionLimit",
        "warning",
        "clients are refused because of `connection_count`",
        "[limits.md](limits.md#over-the-limit)",
        "limits.md#over-the-limit",
        0,
        "clients",
        'increase(timestone_mqtt_over_limit_total{limit="connection_count"}[10m]) > 0',
        None,
        "{{ $labels.instance }} refuses clients: connection_count is reached",
        partial(
            _rising,
            'timestone_mqtt_over_limit_total{limit="connection_count"}',
            10 * MINUTE_S,
            0,
            "{rise:,.0f} clients were refused in {minutes} minutes: connection_count is reached",
        ),
    ),
    Condition(
        "TimestoneDamagedRecords",
        "critical",
        "deliveries skipped damaged records",
        "[`timestone inspect --deep`](cli.md#inspect)",
        "cli.md#inspect",
        0,
        "records",
        "increase(timestone_mqtt_records_corrupt_total[10m]) > 0",
        None,
        "{{ $labels.instance }} met damaged records",
        partial(
            _rising,
            "timestone_mqtt_records_corrupt_total",
            10 * MINUTE_S,
            0,
            "deliveries skipped {rise:,.0f} damaged records in {minutes} minutes",
        ),
    ),
    Condition(
        "TimestoneUnderReplicated",
        "warning",
        "shards of a cluster lack in-sync replicas for five minutes: a further loss may stop appends",
        "[start the nodes that are away](cluster.md#a-damaged-replica), or [replace one](cluster.md#replace-a-node)",
        "cluster.md#a-damaged-replica",
        0,
        "shards",
        "timestone_cluster_under_replicated > 0",
        "5m",
        "{{ $labels.instance }} leads {{ $value }} shards that lack in-sync replicas",
        partial(
            _lasting,
            "timestone_cluster_under_replicated",
            5 * MINUTE_S,
            "{now:.0f} shards that this node leads lack in-sync replicas",
        ),
    ),
    Condition(
        "TimestoneReplicaOut",
        "critical",
        "a replica of a cluster stays out for five minutes, or its node takes nothing from etcd",
        "[the node's log has the reason](cluster.md#a-damaged-replica)",
        "cluster.md#a-damaged-replica",
        0,
        "replicas",
        "timestone_cluster_alarms > 0",
        "5m",
        "replicas of {{ $labels.instance }} stay out: its log has the reason",
        partial(
            _lasting,
            "timestone_cluster_alarms",
            5 * MINUTE_S,
            "{now:.0f} replicas of this node stay out: its log has the reason",
        ),
    ),
)


def alert_rules() -> str:
    """Return the conditions as rules of Prometheus: monitoring/alerts.yaml, which `make alerts` writes."""
    lines = [
        "# Alert rules for Prometheus, made by `make alerts`: docs/monitoring.md has what to do for each.",
        "groups:",
        "  - name: timestone",
        "    rules:",
    ]
    for one in CONDITIONS:
        lines += [
            f"      - alert: {one.name}",
            f"        expr: {one.expression}",
            *([] if one.for_ is None else [f"        for: {one.for_}"]),
            f"        labels: {{severity: {one.severity}}}",
            "        annotations:",
            f'          summary: "{one.summary}"',
        ]
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(alert_rules())
