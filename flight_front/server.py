"""gRPC server of the front: limits of connections, TLS, start, reload and stop. Runs in the loop of the front."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from logging import Logger
from typing import Any

import grpc

from flight_front.calls import AccessSources, Calls, read_access
from flight_front.service import FlightService
from flight_front.settings import FlightSettings
from flight_front.tls import read_certificates
from timestone.address import parse_address, shown_address
from timestone.metrics.metric import Metric, by_label, metric
from timestone.store import Store

_FRAMING_BYTES = 64 * 1024
"""Room for the fields around the largest batch."""
_PING_S, _PONG_S = 60, 20


def read_security(settings: FlightSettings, log: Logger) -> tuple[AccessSources, Any]:
    """Read logins, rights and certificates. Raises ValueError."""
    return read_access(settings, log), read_certificates(settings)


class FlightServer:
    """Server of one store. Made in any thread; the rest in the loop of the front, unless noted otherwise."""

    def __init__(self, store: Store, settings: FlightSettings, executor: Executor, log: Logger) -> None:
        """Read the files that the settings name. Raises ValueError."""
        self._settings = settings
        self._log = log
        sources, self._certificates = read_security(settings, log)
        self.calls = Calls(settings, sources, executor, log)
        self._service = FlightService(store, settings, self.calls, log)
        self._server: Any = None
        self.port = 0

    async def start(self) -> None:
        """Listen. Raises OSError if the address cannot be used."""
        settings = self._settings
        assert settings.listen is not None
        host, port = parse_address(settings.listen, setting="listen")
        message_bytes = settings.message_bytes + _FRAMING_BYTES
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", message_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_metadata_size", 16 * 1024),
                ("grpc.max_concurrent_streams", settings.stream_count),
                ("grpc.max_connection_idle_ms", settings.idle_ms),
                ("grpc.keepalive_time_ms", _PING_S * 1000),
                ("grpc.keepalive_timeout_ms", _PONG_S * 1000),
                ("grpc.so_reuseport", 0),  # a second server on the port is an error, not a second half
            ]
        )
        self._server.add_generic_rpc_handlers((self._service.handler(),))
        address = shown_address(host, port)
        try:
            if self._certificates is None:
                self.port = self._server.add_insecure_port(address)
            else:
                credentials = grpc.dynamic_ssl_server_credentials(
                    self._certificates,
                    lambda: self._certificates,
                    require_client_authentication=settings.client_ca is not None,
                )
                self.port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {settings.listen}: {error}") from error
        await self._server.start()

    async def reload(self) -> None:
        """Read passwords, rights and certificates again. Raises ValueError without a change."""
        sources, certificates = await asyncio.to_thread(read_security, self._settings, self._log)
        self.calls.use(sources)
        self._certificates = certificates

    async def stop(self, within_s: float) -> None:
        """Refuse new calls, end followers, answer appends that were taken; then close all connections."""
        self.calls.stop()
        await self._server.stop(within_s)

    def metrics(self) -> Sequence[Metric]:
        """Return the metrics of the front. Any thread."""
        calls, counts = self.calls, self.calls.counts
        return [
            metric("calls_open", "gauge", "Calls under way.", calls.open_count),
            by_label("calls", "Calls by method.", "method", dict(counts.calls)),
            by_label(
                "calls_failed", "Calls that ended with an error, by status.", "status", dict(counts.failed)
            ),
            by_label("calls_limited", "Calls refused by a limit, by setting.", "limit", dict(counts.limited)),
            metric(
                "puts_idle", "counter", "DoPut streams ended because they were silent.", counts.idle_ended
            ),
            metric("records_read", "counter", "Records sent, of calls that ended.", counts.records_read),
            metric("records_appended", "counter", "Records appended.", counts.records_appended),
            metric("sent_bytes", "counter", "Bytes of batches sent.", counts.bytes_sent),
            metric("received_bytes", "counter", "Bytes of batches received.", counts.bytes_received),
            metric(
                "submitted_bytes",
                "gauge",
                "Bytes that wait for the disk.",
                self._service.submitted.used_bytes,
            ),
            metric("logins_refused", "counter", "Calls without valid credentials.", calls.logins.refused),
            metric(
                "logins_locked_out", "counter", "Calls of these during a lockout.", calls.logins.locked_out
            ),
        ]
