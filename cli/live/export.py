"""`timestone export otlp`: send the samples and events of a server to a collector of OpenTelemetry."""

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import click

from timestone.address import check_host
from timestone.errors import CorruptRecord, MissingExtra, OffsetOutOfRange, UnknownLog
from timestone.metrics.records import EVENTS_LOG, METRICS_LOG, decode_event, decode_sample
from timestone.reading.named_readers import ReaderId
from timestone.view import LogView, StoreView, view_store

from ..errors import CommandError, UsageError
from ..group import Command
from ..input.parameters import DIRECTORY, duration_ms
from ..output.text import print_text
from ..process.interrupts import Interrupts

EXAMPLES = """\
Examples:
  timestone export otlp data                      to http://localhost:4318
  timestone export otlp data --endpoint https://collector.example:4318
  timestone export otlp data --once               what is there, and end

Metrics have the names of /metrics; events are log records. The command is a
named reader of timestone.metrics and timestone.events: it continues where the
collector last took something, so an outage of the collector loses nothing that
retention keeps. Other settings of the connection, such as headers and
certificates, are the environment variables OTEL_EXPORTER_OTLP_...
"""
_COUNT = 50
"""Most records in a request."""
_READ_BYTES = 1 << 20
_POLL_S = 1.0
_LONGEST_S = 30.0
"""Longest pause after failures."""


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument(
    "format_", metavar="FORMAT", type=click.Choice(["otlp"]), help="otlp: OpenTelemetry, over HTTP."
)
@click.argument("directory", metavar="DIR", type=DIRECTORY, help="The store.")
@click.option("--endpoint", metavar="URL", help="Base URL of the collector.")
@click.option("--reader", "name", metavar="NAME", default="otlp", help="Name of the reader.")
@click.option("--once", is_flag=True, help="End when all that is there is sent, or with exit code 1.")
@click.option(
    "--timeout",
    "timeout_ms",
    metavar="DURATION",
    type=duration_ms("s"),
    default="10s",
    help="Time for a request, from 100ms.",
)
def command(
    format_: str, directory: Path, endpoint: str | None, name: str, once: bool, timeout_ms: int
) -> int:
    """Send samples and events of a server to a collector."""
    if endpoint is not None:
        _check_endpoint(endpoint)
    try:
        from .otlp import Collector  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise MissingExtra("requests to a collector", error.name or "opentelemetry", "otel") from None
    collector = Collector(endpoint, max(100, timeout_ms) / 1000)
    with closing(view_store(directory)) as view, closing(collector), Interrupts() as interrupts:
        feeds = [
            Feed(view, ReaderId(METRICS_LOG, 0, name), decode_sample, collector.send_samples),
            Feed(view, ReaderId(EVENTS_LOG, 0, name), _event, collector.send_events),
        ]
        pause_s = _POLL_S
        while not interrupts.requested:
            outcomes = [feed.step() for feed in feeds]
            if None in outcomes:
                if once:
                    raise CommandError("the collector did not take what was sent; nothing of it is lost")
                click.echo(f"the collector did not take it: next attempt in {pause_s:g} s", err=True)
                time.sleep(pause_s)
                pause_s = min(_LONGEST_S, 2 * pause_s)
                continue
            pause_s = _POLL_S
            if not any(outcomes):
                if once:
                    break
                time.sleep(_POLL_S)
    for feed in feeds:
        print_text(f"{feed.reader.log}: {feed.sent} sent, next offset {feed.offset}")
    return interrupts.exit_code


def _check_endpoint(endpoint: str) -> None:
    """Raise UsageError for a URL that no attempt could reach."""
    try:
        parts = urlsplit(endpoint)
        check_host(parts.hostname or ".", setting="endpoint")
        is_valid = parts.scheme in {"http", "https"}
    except ValueError:
        is_valid = False
    if not is_valid:  # without the URL, which may have a password
        raise UsageError("invalid endpoint: expected the http or https URL of a collector")


class Feed:
    """One log, its named reader and where its records go."""

    def __init__(
        self,
        view: StoreView,
        reader: ReaderId,
        decode: Callable[[bytes], Any],
        send: Callable[[list[Any]], bool],
    ) -> None:
        self.reader = reader
        self.sent = 0
        found = view.committed(reader)
        self.offset = 0 if found is None else found.offset
        self._view, self._decode, self._send = view, decode, send

    def step(self) -> bool | None:
        """Send the next records and commit. Return whether there were any; None if the collector did not take them."""
        try:
            log = self._view.log(self.reader.log, self.reader.partition)
        except UnknownLog:
            return False
        payloads, following = _read(log, self.offset)
        items = [item for item in map(self._decoded, payloads) if item is not None]
        if items and not self._send(items):
            return None
        if following == self.offset:
            return False
        self._view.commit_readers({self.reader: following})
        self.offset = following
        self.sent += len(items)
        return True

    def _decoded(self, payload: bytes) -> Any:
        try:
            return self._decode(payload)
        except ValueError as error:
            click.echo(f"{self.reader.log}: a record is left out: {error}", err=True)
            return None


def _event(payload: bytes) -> dict[str, Any]:
    facts = decode_event(payload)
    if not isinstance(facts.get("time_us"), int) or not {"event", "node"} <= facts.keys():
        raise ValueError("invalid event: expected time_us, event and node")
    return facts


class _Read(NamedTuple):
    payloads: list[bytes]
    next_offset: int


def _read(log: LogView, offset: int) -> _Read:
    """Return payloads from an offset on. Damaged records are skipped; what retention has deleted is gone."""
    at = max(offset, log.start_offset)
    while at < log.end_offset:
        try:
            batch = log.read(at, max_records=_COUNT, max_bytes=_READ_BYTES)
        except CorruptRecord as error:
            click.echo(f"left out: {error}", err=True)
            at = error.next_offset
        except OffsetOutOfRange as error:
            at = max(at, error.start)
        else:
            return _Read([bytes(record.payload) for record in batch], batch.next_offset)
    return _Read([], at)
