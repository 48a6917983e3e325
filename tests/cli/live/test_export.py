"""A collector that fails, stalls and returns gets everything once, and nothing again after a commit."""

import gzip
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

import timestone
from mqtt_front.codec.packets import Puback, Publish
from mqtt_front.codec.properties import Properties
from tests.cli.processes import Running
from tests.cli.processes import timestone as command
from tests.support.mqtt_clients import RawClient
from tests.support.waiting import wait_for
from timestone.metrics.metric import metric
from timestone.metrics.records import (
    EVENT_TOPICS,
    EVENTS_LOG,
    METRICS_LOG,
    METRICS_TOPIC,
    encode_event,
    encode_sample,
    sample_of,
)
from timestone.reading.named_readers import ReaderId
from timestone_cli.main import main

SAMPLES, EVENTS = 120, 7


class Collecting(ThreadingHTTPServer):
    """Collector of OTLP over HTTP that keeps what it has answered with 200."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.status = 200
        self.stalled: threading.Event | None = None
        """Requests wait for it, and are then not answered."""
        self.requests = 0
        self.is_of_server = False
        """Samples have all metrics of a server."""
        self.samples: list[tuple[int, float]] = []
        self.events: list[tuple[str, str]] = []
        self.spans: list[Span] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has left is no error here."""

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/metrics":
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in resource.scope_metrics:
                    for one in scope.metrics:
                        if one.name != "timestone_mqtt_publishes_received_total" and self.is_of_server:
                            continue
                        assert one.name == "timestone_mqtt_publishes_received_total"
                        assert one.sum.is_monotonic and one.sum.aggregation_temporality == 2
                        self.samples += [
                            (point.time_unix_nano, point.as_double or point.as_int)
                            for point in one.sum.data_points
                        ]
            return
        if path == "/v1/traces":
            for spans in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.spans += [span for scope in spans.scope_spans for span in scope.spans]
            return
        assert path == "/v1/logs"
        for logs in ExportLogsServiceRequest.FromString(body).resource_logs:
            for found in logs.scope_logs:
                for record in found.log_records:
                    facts = {one.key: one.value.string_value for one in record.body.kvlist_value.values}
                    self.events.append((record.event_name, facts.get("client", "")))


class Answering(BaseHTTPRequestHandler):
    server: Collecting

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.requests += 1
        if self.server.stalled is not None:
            self.server.stalled.wait(60)
            self.close_connection = True
            return
        if self.server.status == 200:
            self.server.take(self.path, body)
        self.send_response(self.server.status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""


@pytest.fixture
def collector() -> Iterator[Collecting]:
    with Collecting() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def record(path: Path, first: int, count: int, events: int) -> None:
    with timestone.open(path) as store:
        for number in range(first, first + count):
            metrics = [metric("timestone_mqtt_publishes_received", "counter", "Publishes.", number)]
            sample = sample_of(metrics, time_us=number + 1, started_us=1, node="n", interval_ms=1000)
            store.log(METRICS_LOG).append(encode_sample(sample), topic=METRICS_TOPIC)
        for number in range(events):
            facts = {"client": f"c{first + number}", "user": None, "counts": {"publishes_received": 3}}
            payload = encode_event("disconnected", facts, time_us=number + 1, node="n")
            store.log(EVENTS_LOG).append(payload, topic=EVENT_TOPICS["disconnected"])


def committed(path: Path) -> list[int | None]:
    with timestone.view(path) as view:
        found = [view.committed(ReaderId(log, 0, "otlp")) for log in (METRICS_LOG, EVENTS_LOG)]
        return [None if one is None else one.offset for one in found]


@pytest.mark.slow
def test_export_loses_nothing_and_repeats_nothing_when_the_collector_fails_and_stalls(
    tmp_path: Path, collector: Collecting
) -> None:
    path = tmp_path / "data"
    record(path, 0, SAMPLES, EVENTS)
    words = ("export", "otlp", str(path), "--endpoint", collector.url, "--timeout", "500ms", "--once")
    collector.status = 500
    failed = command(*words)
    assert failed.returncode == 1 and "nothing of it is lost" in failed.stderr
    assert collector.requests >= 2 and committed(path) == [None, None]
    collector.stalled = threading.Event()
    assert command(*words).returncode == 1
    assert committed(path) == [None, None]
    collector.stalled.set()
    collector.stalled, collector.status = None, 200
    assert command(*words).returncode == 0
    assert collector.samples == [((number + 1) * 1000, number) for number in range(SAMPLES)]
    assert collector.events == [("timestone.disconnected", f"c{number}") for number in range(EVENTS)]
    assert committed(path) == [SAMPLES, EVENTS]
    requests = collector.requests
    done = command(*words)
    assert done.returncode == 0 and collector.requests == requests
    assert f"timestone.metrics: 0 sent, next offset {SAMPLES}" in done.stdout
    record(path, SAMPLES, 1, 0)
    assert command(*words).returncode == 0
    assert collector.samples[SAMPLES:] == [((SAMPLES + 1) * 1000, SAMPLES)]


@pytest.mark.slow
def test_export_continues_when_the_collector_returns_and_after_a_damaged_record(
    tmp_path: Path, collector: Collecting
) -> None:
    path = tmp_path / "data"
    record(path, 0, 3, 0)
    with timestone.open(path) as store:
        store.log(METRICS_LOG).append(b"nonsense", topic=METRICS_TOPIC)
        store.log(EVENTS_LOG).append(b'{"schema":1}', topic=EVENT_TOPICS["connected"])
    record(path, 3, 1, 1)
    collector.status = 500
    words = ("export", "otlp", "data", "--endpoint", collector.url, "--timeout", "1s")
    with Running(*words, cwd=tmp_path) as running:
        wait_for(lambda: collector.requests)
        collector.status = 200
        wait_for(lambda: committed(path) == [5, 2])
        _, out, err = running.stop()
    assert [value for _, value in collector.samples] == [0, 1, 2, 3]
    assert "timestone.metrics: 4 sent, next offset 5" in out and "a record is left out" in err


@pytest.mark.slow
def test_traced_publish_is_spans_at_the_collector_below_those_of_its_publisher(
    tmp_path: Path, collector: Collecting
) -> None:
    """From a client that begins a trace, through a server, to a collector that was away at first."""
    ready, collector.is_of_server, collector.status = tmp_path / "ready.json", True, 500
    words = ("--data", "data", "--mqtt", "127.0.0.1:0", "--console", "none", "--mqtt-traces-per-s", "100")
    with Running("serve", *words, "--ack", "synced", "--ready-file", str(ready), cwd=tmp_path) as server:
        wait_for(ready.exists)
        host, _, port = json.loads(ready.read_text())["fronts"]["mqtt"]["address"].rpartition(":")
        with RawClient((host, int(port)), 5) as publisher, RawClient((host, int(port)), 5) as subscriber:
            subscriber.connect("subscriber", clean=True)
            subscriber.subscribe("t")
            publisher.connect("publisher", clean=True)
            traceparent = (("traceparent", f"00-{0xABC:032x}-{7:016x}-01"),)
            properties = Properties(user_properties=traceparent)
            publisher.send(Publish("t", b"x", 1, packet_id=1, properties=properties))
            publisher.expect(Puback)
            (delivered,) = subscriber.receive(1)
            assert delivered.properties.user_properties == traceparent
        assert server.stop()[0] == 0
    export = (
        "export",
        "otlp",
        str(tmp_path / "data"),
        "--endpoint",
        collector.url,
        "--timeout",
        "500ms",
        "--once",
    )
    assert command(*export).returncode == 1 and not collector.spans
    collector.status = 200
    assert command(*export).returncode == 0
    found = {span.name: span for span in collector.spans}
    assert len(found) == len(collector.spans)
    assert list(found) == ["publish", "append", "flush", "acknowledge", "deliver"]
    assert {int.from_bytes(span.trace_id, "big") for span in found.values()} == {0xABC}
    publish = found.pop("publish")
    assert int.from_bytes(publish.parent_span_id, "big") == 7
    assert {span.parent_span_id for span in found.values()} == {publish.span_id}
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in collector.spans)
    assert command(*export).returncode == 0 and len(collector.spans) == 5


@pytest.mark.parametrize(
    "endpoint", ["a.example", "ftp://a.example", "http://", "http://a..example", "http://[::1"]
)
def test_export_is_wrong_usage_when_no_attempt_could_reach_the_endpoint(
    endpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "otlp", "data", "--endpoint", endpoint]) == 64
    expected = "timestone export: invalid endpoint: expected the http or https URL of a collector\n"
    assert capsys.readouterr().err == expected


def test_export_names_the_extra_when_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path / "data", 0, 1, 0)
    monkeypatch.delitem(sys.modules, "timestone_cli.live.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry._logs", None)
    assert main(["export", "otlp", str(tmp_path / "data"), "--once"]) == 1
    error = capsys.readouterr().err
    assert "requests to a collector need opentelemetry" in error and "[otel]" in error
