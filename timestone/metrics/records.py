"""Records of what a server says about itself: samples of its metrics, and events. See docs/formats/metrics.md.

A sample has counters since the start of the server, so the difference of two samples is exact for the time between
them, and no sample has to be added to another."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from timestone.metrics.histogram import Histogram
from timestone.metrics.metric import Metric, series_name

SCHEMA = 1
METRICS_LOG, EVENTS_LOG = "timestone.metrics", "timestone.events"
SERVER_ROOT = "$timestone"
"""First level of the topics in both logs. Clients cannot publish below it."""
METRICS_TOPIC = f"{SERVER_ROOT}/metrics"
EVENT_TOPICS = {name: f"{SERVER_ROOT}/events/{name}" for name in ("connected", "disconnected", "watched")}
"""Topic of each kind of event. No topic names a client: a topic is kept for as long as its log."""
ACTION, ACTIONS_TOPIC = "action", f"{SERVER_ROOT}/actions"
"""Event of what an operator has the server do, before it is done and how it ended; and its topic."""
TRAFFIC, TRAFFIC_TOPIC = "traffic", f"{SERVER_ROOT}/clients/traffic"
"""Event with the counts of a connection so far, each minute; and its topic."""
HOUR, HOUR_TOPIC = "hour", f"{SERVER_ROOT}/hour"
"""Event with minimum, mean and maximum of each gauge in an hour; and its topic."""
TRACE, TRACES_TOPIC = "trace", f"{SERVER_ROOT}/traces"
"""Event of a sampled batch of publishes with its spans; and its topic."""
SAMPLE_DDL = (
    "schema int, time_us bigint, started_us bigint, node string, interval_ms bigint, values map<string,double>, "
    "histograms map<string,struct<counts:array<bigint>,sum_seconds:double>>"
)
EVENT_DDL = (
    "schema int, time_us bigint, node string, event string, connections bigint, connection bigint, client string, "
    "user string, address string, transport string, mqtt string, connected_us bigint, session_resumed boolean, "
    "reason string, counts map<string,bigint>, started_us bigint, numbers array<bigint>, idle_s bigint, "
    "lag bigint, unsent_bytes bigint, submitted_bytes bigint, held array<string>, trouble array<string>, "
    "left_out bigint, packets array<struct<time_us:bigint,direction:string,kind:string,topic:string,qos:int,"
    "retain:boolean,payload_bytes:bigint,reason:int>>, from_us bigint, samples bigint, "
    "gauges map<string,struct<min:double,mean:double,max:double>>, "
    "log string, partition int, offset bigint, records bigint, acknowledged bigint, trace string, parent string, "
    "spans array<struct<name:string,from_us:bigint,to_us:bigint>>"
)
"""Both as schemas of Spark SQL, for `from_json`."""
_TEXT_MOST = 1000


class UnsupportedSchema(ValueError):
    """A record of a later version."""


class Durations(NamedTuple):
    """Histogram in a sample: observations since the start of the server."""

    counts: tuple[int, ...]
    """By bucket: those up to each of `BOUNDS_S` and above the one before, then the longer ones."""
    sum_seconds: float


class Sample(NamedTuple):
    """Metrics of a server at one moment."""

    time_us: int
    started_us: int
    """When the server started; counters begin at 0 there."""
    node: str
    """Name of the machine."""
    interval_ms: int
    values: Mapping[str, float]
    """Counters and gauges by the name that they have in `/metrics`, with labels."""
    histograms: Mapping[str, Durations]


def sample_of(
    metrics: Iterable[Metric], *, time_us: int, started_us: int, node: str, interval_ms: int
) -> Sample:
    """Return a sample of metrics with their full names."""
    values: dict[str, float] = {}
    histograms: dict[str, Durations] = {}
    for one in metrics:
        for labels, value in one.samples:
            if isinstance(value, Histogram):
                counts = tuple(_differences(value.cumulative()))
                histograms[one.name + series_name("", labels)] = Durations(counts, value.sum_ns / 1e9)
            elif one.kind != "info":
                values[one.name + series_name(one.suffix, labels)] = value
    return Sample(time_us, started_us, node, interval_ms, values, histograms)


def _differences(cumulative: Iterable[int]) -> Iterator[int]:
    before = 0
    for count in cumulative:
        yield count - before
        before = count


def encode_sample(sample: Sample) -> bytes:
    """Return a sample as the payload of a record."""
    histograms = {name: one._asdict() for name, one in sample.histograms.items()}
    return _encode({"schema": SCHEMA, **sample._asdict(), "histograms": histograms})


def decode_sample(payload: bytes | memoryview) -> Sample:
    """Return the sample in a payload; keys of later versions are ignored. Raises UnsupportedSchema, and ValueError for
    what is not a sample."""
    document = _decode(payload)
    try:
        histograms = {
            name: Durations(tuple(one["counts"]), one["sum_seconds"])
            for name, one in document["histograms"].items()
        }
        found = {name: document[name] for name in Sample._fields}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"invalid sample: {error!r}") from None
    return Sample(**{**found, "histograms": histograms})


def encode_event(event: str, facts: Mapping[str, Any], *, time_us: int, node: str) -> bytes:
    """Return an event as the payload of a record. Texts of clients are cut to 1,000 characters."""
    cut = {name: fact[:_TEXT_MOST] if isinstance(fact, str) else fact for name, fact in facts.items()}
    return _encode({"schema": SCHEMA, "time_us": time_us, "node": node, "event": event, **cut})


def decode_event(payload: bytes | memoryview) -> dict[str, Any]:
    """Return the facts of an event, with those of every event. Raises UnsupportedSchema, and ValueError for what is not
    an event."""
    return _decode(payload)


def _encode(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _decode(payload: bytes | memoryview) -> dict[str, Any]:
    document = json.loads(bytes(payload))
    if not isinstance(document, dict) or type(document.get("schema")) is not int:
        raise ValueError("invalid record of a server: expected an object with a schema")
    if document["schema"] > SCHEMA:
        raise UnsupportedSchema(
            f"schema {document['schema']} is of a later version: expected at most {SCHEMA}"
        )
    return document
