"""The overview: what the server does now, how long it takes, what is wrong; and the figures of any span as series."""

import itertools
import shutil
import time
from typing import Annotated

import msgspec

from timestone.disk.files import Files
from timestone.disk.lock import is_owned, read_owner
from timestone.errors import TimestoneError
from timestone.format.names import LOCK_NAME
from timestone.metrics.records import Sample

from ..http.sessions import Session
from ..reading.conditions import LEAST_TREND_S, findings
from ..reading.reader_lags import ReaderPlace, furthest_behind, time_at
from ..reading.samples import POINTS_MOST, Change, changes, highest, in_order, percentile, total
from ..sources import Sources

LATEST_S = 60
"""Span of the figures of now."""
_LOG_COUNT = 100
_NAME_COUNT = 20
HOUR_US = 3_600_000_000
_ACKNOWLEDGE, _FLUSH, _DELIVER = (
    "timestone_mqtt_acknowledge_seconds",
    "timestone_store_flush_seconds",
    "timestone_mqtt_deliver_seconds",
)
Name = Annotated[str, msgspec.Meta(max_length=1000)]


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """Server of the store. state: `running`; `silent`: a process owns the store and does not answer; `stopped`."""

    state: str
    pid: int | None = None
    version: str | None = None
    started_us: int | None = None
    last_sample_us: int | None = None


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Traffic a second, over the last minute of samples; null without two samples."""

    publishes_per_s: float | None = None
    deliveries_per_s: float | None = None
    bytes_in_per_s: float | None = None
    bytes_out_per_s: float | None = None
    span_s: float = 0.0


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Durations over the last minute: upper bounds of buckets that are powers of two; null without observations."""

    count: int
    p50_s: float | None
    p99_s: float | None
    max_s: float | None


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """Acknowledgement of publishes, flush to the disk, delivery to subscribers."""

    acknowledge: Latency | None = None
    flush: Latency | None = None
    deliver: Latency | None = None


class ClientCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Clients and the bytes that wait because of them; null without a sample."""

    connected: int | None = None
    away: int | None = None
    refused_total: int | None = None
    submitted_bytes: int | None = None
    unsent_bytes: int | None = None


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """Disk of the store. full_in_s: at the rate of the last hour of samples; null if it does not fill."""

    total_bytes: int
    free_bytes: int
    store_bytes: int
    growth_bytes_per_s: float | None = None
    full_in_s: float | None = None


class Horizon(msgspec.Struct, frozen=True, kw_only=True):
    """Oldest record of a log."""

    log: str
    partition: int
    oldest_us: int | None
    start_offset: int
    end_offset: int


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Event to mark in charts. kind: `start`."""

    time_us: int
    kind: str
    text: str


class Wrong(msgspec.Struct, frozen=True, kw_only=True):
    """Condition that holds now, or log whose files are damaged."""

    name: str
    severity: str
    text: str
    docs: str
    since_us: int | None
    """Since when, looked for up to six hours back."""
    log: str | None = None
    """Log whose files are damaged."""
    partition: int | None = None


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """Traffic a second between the last two looks at the running server, and its clients now."""

    publishes_per_s: float
    deliveries_per_s: float
    bytes_in_per_s: float
    bytes_out_per_s: float
    connected: int
    span_s: float


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """State of a store and its server."""

    now_us: int
    store: str
    version: str
    server: ServerState
    live: Live | None
    """Null without a server, and at the first look."""
    rates: Rates
    latencies: Latencies
    clients: ClientCounts
    furthest_behind: ReaderPlace | None
    disk: Disk
    horizons: list[Horizon]
    marks: list[Mark]
    wrong: list[Wrong]


def overview(sources: Sources, session: Session, query: NoQuery) -> Overview:
    """Return what the server does now, and what is wrong."""
    samples = sources.samples.last(1 + max(1, LATEST_S // 10))
    newest = samples[-1] if samples else None
    change = None
    if newest is not None and samples[0].started_us == newest.started_us and len(samples) > 1:
        change = Change(samples[0], newest)
    elif newest is not None:
        same = [one for one in samples if one.started_us == newest.started_us]
        change = Change(same[0], newest) if len(same) > 1 else None
    hour = sources.samples.between(time.time_ns() // 1000 - HOUR_US, time.time_ns() // 1000, 60)
    return Overview(
        now_us=time.time_ns() // 1000,
        store=str(sources.view.path.resolve()),
        version=sources.version,
        server=server_state(sources, newest),
        live=live(sources),
        rates=_rates(change),
        latencies=Latencies() if change is None else _latencies(change),
        clients=ClientCounts() if newest is None else _client_counts(newest),
        furthest_behind=furthest_behind(sources.view),
        disk=_disk(sources, hour),
        horizons=_horizons(sources),
        marks=[
            Mark(time_us=after.started_us, kind="start", text="the server started")
            for before, after in itertools.pairwise(hour)
            if before.started_us != after.started_us
        ],
        wrong=[
            Wrong(
                name=one.name,
                severity=one.severity,
                text=one.text,
                docs=one.docs,
                since_us=one.since_us,
            )
            for one in findings(sources.samples)
            if one.is_firing
        ]
        + [
            Wrong(
                name="DamagedLog",
                severity="critical" if one.is_loss else "warning",
                text=one.text,
                docs="cli.md#inspect",
                since_us=one.found_us,
                log=one.log,
                partition=one.partition,
            )
            for one in sources.damage.look(owned=sources.is_owned())
        ],
    )


def server_state(sources: Sources, newest: Sample | None) -> ServerState:
    """Return whether a server runs on the store."""
    last_us = newest.time_us if newest is not None else None
    status = sources.status()
    if status is not None:
        return ServerState(
            state="running",
            pid=status["pid"],
            version=status["server"],
            started_us=status["started_us"],
            last_sample_us=last_us,
        )
    lock = sources.view.path / LOCK_NAME
    if is_owned(Files(), lock):
        return ServerState(state="silent", pid=read_owner(Files(), lock)[0], last_sample_us=last_us)
    return ServerState(
        state="stopped", started_us=newest.started_us if newest is not None else None, last_sample_us=last_us
    )


def live(sources: Sources) -> Live | None:
    """Return the traffic between the last two looks at the server. A node of a cluster that serves no clients has
    none."""
    before, after = sources.statuses()
    if before is None or after is None or before["started_us"] != after["started_us"]:
        return None
    passed_s = (after["now_us"] - before["now_us"]) / 1e6
    old, new = before["parts"].get("mqtt"), after["parts"].get("mqtt")
    if passed_s <= 0 or old is None or new is None:
        return None

    def rate(name: str) -> float:
        return float(max(0, new.get(name, 0) - old.get(name, 0)) / passed_s)

    return Live(
        publishes_per_s=rate("publishes_received"),
        deliveries_per_s=rate("deliveries_sent"),
        bytes_in_per_s=rate("bytes_received"),
        bytes_out_per_s=rate("bytes_sent"),
        connected=new.get("sessions_connected", 0),
        span_s=passed_s,
    )


def _rates(change: Change | None) -> Rates:
    if change is None:
        return Rates()
    return Rates(
        publishes_per_s=change.rate("timestone_mqtt_publishes_received_total"),
        deliveries_per_s=change.rate("timestone_mqtt_deliveries_sent_total"),
        bytes_in_per_s=change.rate("timestone_mqtt_bytes_received_total"),
        bytes_out_per_s=change.rate("timestone_mqtt_bytes_sent_total"),
        span_s=change.passed_s,
    )


def _latencies(change: Change) -> Latencies:
    return Latencies(
        acknowledge=_latency(change, _ACKNOWLEDGE),
        flush=_latency(change, _FLUSH),
        deliver=_latency(change, _DELIVER),
    )


def _latency(change: Change, name: str) -> Latency | None:
    counts = change.observed(name)
    if not counts:
        return None
    return Latency(
        count=sum(counts),
        p50_s=percentile(counts, 0.5),
        p99_s=percentile(counts, 0.99),
        max_s=highest(counts),
    )


def _client_counts(newest: Sample) -> ClientCounts:
    def whole(name: str) -> int | None:
        value = total(newest, f"timestone_mqtt_{name}")
        return None if value is None else int(value)

    return ClientCounts(
        connected=whole("sessions_connected"),
        away=whole("sessions_away"),
        refused_total=whole("connections_refused_total"),
        submitted_bytes=whole("bytes_submitted"),
        unsent_bytes=whole("bytes_unsent"),
    )


def _disk(sources: Sources, hour: list[Sample]) -> Disk:
    usage = shutil.disk_usage(sources.view.path)
    found = Disk(total_bytes=usage.total, free_bytes=usage.free, store_bytes=sources.store_bytes())
    free = [
        (one.time_us, value)
        for one in hour
        if (value := total(one, "timestone_store_free_bytes")) is not None
    ]
    if len(free) < 2 or free[-1][0] - free[0][0] < LEAST_TREND_S * 1e6:
        return found
    growth = (free[0][1] - free[-1][1]) / ((free[-1][0] - free[0][0]) / 1e6)
    return msgspec.structs.replace(
        found, growth_bytes_per_s=growth, full_in_s=usage.free / growth if growth > 0 else None
    )


def _horizons(sources: Sources) -> list[Horizon]:
    found = []
    for name, partition in sources.view.log_names()[:_LOG_COUNT]:
        try:
            log = sources.view.log(name, partition)
            start, end = log.start_offset, log.end_offset
        except (TimestoneError, OSError):
            continue  # the page of the logs says why
        found.append(
            Horizon(
                log=name,
                partition=partition,
                oldest_us=time_at(log, start),
                start_offset=start,
                end_offset=end,
            )
        )
    return found


class SeriesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names and span of a chart."""

    name: Annotated[
        tuple[Name, ...],
        msgspec.Meta(
            min_length=1,
            max_length=_NAME_COUNT,
            description="names of metrics as in /metrics, with or without labels; `_total` as a rate; of a histogram "
            "with the percentile behind a colon: timestone_store_flush_seconds:p99",
        ),
    ]
    from_: Annotated[
        int | None, msgspec.Meta(description="start in microseconds; an hour before the end")
    ] = msgspec.field(default=None, name="from")
    to: Annotated[int | None, msgspec.Meta(description="end in microseconds; now")] = None
    points: Annotated[int, msgspec.Meta(ge=2, le=POINTS_MOST)] = 240


class OneSeries(msgspec.Struct, frozen=True, kw_only=True):
    """Values of one name at the times of the reply. kind: `rate`, `gauge` or `percentile`; unit: `seconds`, `bytes` or
    empty, a second for a rate. A null is a gap."""

    name: str
    kind: str
    unit: str
    values: list[float | None]
    least: float | None
    mean: float | None
    most: float | None
    most_us: int | None


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Figures over time. The value at a time is that of the span since the time before it."""

    from_us: int
    to_us: int
    times_us: list[int]
    series: list[OneSeries]
    starts_us: list[int]
    """Starts of the server in that span: the line has a gap there."""


def series(sources: Sources, session: Session, query: SeriesQuery) -> Series:
    """Return figures over time, from at most 500 samples at equal distances."""
    to_us = time.time_ns() // 1000 if query.to is None else query.to
    from_us = to_us - HOUR_US if query.from_ is None else query.from_
    samples = sources.samples.between(from_us, to_us, query.points)
    order = in_order([one.time_us for one in samples[1:]])
    steps, later = changes(samples), samples[1:]
    steps, later = [steps[index] for index in order], [later[index] for index in order]
    times_us = [one.time_us for one in later]
    return Series(
        from_us=from_us,
        to_us=to_us,
        times_us=times_us,
        series=[_one_series(name, later, steps, times_us) for name in query.name],
        starts_us=[
            after.started_us
            for before, after in itertools.pairwise(samples)
            if before.started_us != after.started_us
        ],
    )


def _one_series(
    name: str, samples: list[Sample], steps: list[Change | None], times_us: list[int]
) -> OneSeries:
    metric, colon, share = name.rpartition(":p")
    values: list[float | None]
    if colon and share.replace(".", "", 1).isdigit():
        kind, unit = "percentile", "seconds"
        values = [
            None if one is None else percentile(one.observed(metric), min(1.0, float(share) / 100))
            for one in steps
        ]
    else:
        bare = name.partition("{")[0]
        is_counter = bare.endswith("_total")
        kind = "rate" if is_counter else "gauge"
        last = bare.removesuffix("_total").rpartition("_")[2]
        unit = last if last in ("bytes", "seconds") else ""
        if is_counter:
            values = [None if one is None else one.rate(name) for one in steps]
        else:
            values = [total(one, name) for one in samples]
    there = [(value, at_us) for value, at_us in zip(values, times_us, strict=True) if value is not None]
    most, most_us = max(there, default=(None, None))
    return OneSeries(
        name=name,
        kind=kind,
        unit=unit,
        values=values,
        least=min((value for value, _ in there), default=None),
        mean=sum(value for value, _ in there) / len(there) if there else None,
        most=most,
        most_us=most_us,
    )
