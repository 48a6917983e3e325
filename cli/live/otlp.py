"""Samples and events of a server as requests of OTLP over HTTP. Needs the extra `otel`."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

from timestone.metrics.histogram import BOUNDS_S
from timestone.metrics.records import TRACE, Durations, Sample

_SCOPE = InstrumentationScope("timestone")
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
_UNESCAPED = {"\\\\": "\\", "\\n": "\n", '\\"': '"'}
_UNITS = {"_seconds": "s", "_bytes": "By"}
_CUMULATIVE = AggregationTemporality.CUMULATIVE


class Collector:
    """Collector of OpenTelemetry. Other settings are its environment variables, `OTEL_EXPORTER_OTLP_…`."""

    def __init__(self, endpoint: str | None, timeout_s: float) -> None:
        """endpoint: base URL, without `/v1/metrics`. timeout_s: for a request with the attempts to repeat it."""
        base = None if endpoint is None else endpoint.rstrip("/")
        self._metrics = OTLPMetricExporter(base and f"{base}/v1/metrics", timeout=timeout_s)
        self._logs = OTLPLogExporter(base and f"{base}/v1/logs", timeout=timeout_s)
        self._spans = OTLPSpanExporter(base and f"{base}/v1/traces", timeout=timeout_s)

    def send_samples(self, samples: Sequence[Sample]) -> bool:
        """Send samples; return whether the collector has taken them."""
        # The library keeps only the last part of a request for each resource, so there is one for each.
        by_node: dict[str, list[Sample]] = {}
        for one in samples:
            by_node.setdefault(one.node, []).append(one)
        data = MetricsData([_resource_metrics(node, found) for node, found in by_node.items()])
        return self._metrics.export(data) is MetricExportResult.SUCCESS

    def send_events(self, events: Sequence[Mapping[str, Any]]) -> bool:
        """Send traces as spans and other events as log records; return whether the collector has taken them."""
        spans = [span for one in events if one["event"] == TRACE for span in spans_of(one)]
        if spans and self._spans.export(spans) is not SpanExportResult.SUCCESS:
            return False
        records = [_log_record(one) for one in events if one["event"] != TRACE]
        return not records or self._logs.export(records) is LogRecordExportResult.SUCCESS

    def close(self) -> None:
        """End the connections."""
        self._metrics.shutdown()
        self._logs.shutdown()  # type: ignore[no-untyped-call]
        self._spans.shutdown()  # type: ignore[no-untyped-call]


def _resource(node: str) -> Resource:
    return Resource({"service.name": "timestone", "host.name": node})


def _resource_metrics(node: str, samples: Sequence[Sample]) -> ResourceMetrics:
    return ResourceMetrics(
        _resource(node), [ScopeMetrics(_SCOPE, list(metrics_of(samples)), schema_url="")], schema_url=""
    )


def metrics_of(samples: Iterable[Sample]) -> Iterable[Metric]:
    """Yield each metric with its points in all samples."""
    numbers: dict[str, list[NumberDataPoint]] = {}
    durations: dict[str, list[HistogramDataPoint]] = {}
    for sample in samples:
        start_ns, time_ns = sample.started_us * 1000, sample.time_us * 1000
        for series, value in sample.values.items():
            name, labels = split_series(series)
            numbers.setdefault(name, []).append(NumberDataPoint(labels, start_ns, time_ns, value))
        for series, found in sample.histograms.items():
            name, labels = split_series(series)
            point = _histogram_point(labels, start_ns, time_ns, found)
            durations.setdefault(name, []).append(point)
    for name, points in numbers.items():
        is_counter = name.endswith("_total")
        data = Sum(points, _CUMULATIVE, is_monotonic=True) if is_counter else Gauge(points)
        yield Metric(name, None, _unit(name.removesuffix("_total")), data)
    for name, histogram_points in durations.items():
        yield Metric(name, None, _unit(name), Histogram(histogram_points, _CUMULATIVE))


def _histogram_point(
    labels: Mapping[str, str], start_ns: int, time_ns: int, found: Durations
) -> HistogramDataPoint:
    # A sample has no minimum and maximum: the fields are optional in a request.
    no_value: Any = None
    return HistogramDataPoint(
        labels,
        start_ns,
        time_ns,
        sum(found.counts),
        found.sum_seconds,
        found.counts,
        BOUNDS_S,
        min=no_value,
        max=no_value,
    )


def split_series(series: str) -> tuple[str, dict[str, str]]:
    """Return name and labels of a series as `/metrics` writes it."""
    name, _, rest = series.partition("{")
    labels = {
        key: re.sub(r"\\.", lambda found: _UNESCAPED.get(found[0], found[0]), text)
        for key, text in _LABEL.findall(rest)
    }
    return name, labels


def _unit(name: str) -> str:
    return next((unit for ending, unit in _UNITS.items() if name.endswith(ending)), "1")


def spans_of(event: Mapping[str, Any]) -> list[ReadableSpan]:
    """Return the spans of a trace: `publish`, and its steps below it; none for a record that is not valid. Their ids
    follow from the trace and the record, so a trace that is sent twice has the same spans."""
    try:
        trace, parent = int(event["trace"], 16), event["parent"]
        place = f"{event['trace']} {event['log']} {event['partition']} {event['offset']}"
        attributes: dict[str, Any] = {
            "messaging.system": "mqtt",
            "messaging.batch.message_count": int(event["records"]),
            "timestone.log": str(event["log"]),
            "timestone.partition": int(event["partition"]),
            "timestone.offset": int(event["offset"]),
        }
        above = None if parent is None else _context(trace, int(parent, 16))
        publish = _context(trace, _span_id(place, "publish"))
        return [
            ReadableSpan(
                name=str(one["name"]),
                context=publish
                if one["name"] == "publish"
                else _context(trace, _span_id(place, one["name"])),
                parent=above if one["name"] == "publish" else publish,
                resource=_resource(str(event["node"])),
                attributes=attributes,
                kind=SpanKind.SERVER if one["name"] == "publish" else SpanKind.INTERNAL,
                instrumentation_scope=_SCOPE,
                start_time=int(one["from_us"]) * 1000,
                end_time=int(one["to_us"]) * 1000,
            )
            for one in event["spans"]
        ]
    except (KeyError, TypeError, ValueError):
        return []


def _context(trace: int, span: int) -> SpanContext:
    return SpanContext(trace, span, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _span_id(place: str, name: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"{place} {name}".encode(), digest_size=8).digest(), "big") or 1


def _log_record(event: Mapping[str, Any]) -> ReadableLogRecord:
    time_ns = event["time_us"] * 1000
    facts = {name: fact for name, fact in event.items() if fact is not None}
    record = LogRecord(
        timestamp=time_ns,
        observed_timestamp=time_ns,
        severity_number=SeverityNumber.INFO,
        severity_text="INFO",
        body=facts,
        event_name=f"timestone.{event['event']}",
    )
    return ReadableLogRecord(record, _resource(str(event["node"])), _SCOPE)
