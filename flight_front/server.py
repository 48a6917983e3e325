"""gRPC server of the front: limits of connections, TLS, start, reload and stop. Runs in the loop of the front."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from logging import Logger
from typing import Any

from flight_front.calls import AccessSources, Calls, read_access
from flight_front.gateway.batch_memory import BatchMemory
from flight_front.listening import listening, listening_for_gateway, read_certificates
from flight_front.service import FlightService
from flight_front.settings import FlightSettings
from timestone.fronts import ClusterNode
from timestone.metrics.metric import Metric, by_label, metric
from timestone.store import Store
from timestone_access.lockout import failed_logins


def read_security(settings: FlightSettings, log: Logger) -> tuple[AccessSources, Any]:
    """Read logins, rights and certificates. Raises ValueError."""
    return read_access(settings, log), read_certificates(settings.listener)


class FlightServer:
    """Server of one store. Made in any thread; the rest in the loop of the front, unless noted otherwise."""

    def __init__(
        self,
        store: Store,
        settings: FlightSettings,
        executor: Executor,
        log: Logger,
        node: ClusterNode | None = None,
    ) -> None:
        """Read the files that the settings name. Raises ValueError. node: on which it serves, if the store is in a
        cluster."""
        self._settings = settings
        self._log = log
        sources, self._certificates = read_security(settings, log)
        self.calls = Calls(settings, sources, executor, log, failed_logins(store))
        self._service = FlightService(store, settings, self.calls, log, node)
        self._server: Any = None
        self.port = 0

    async def start(self, gateway: str | None) -> None:
        """Listen for clients, or on the Unix socket of a gateway. Raises OSError if the address cannot be used."""
        handlers = self._service.handlers(for_gateway=gateway is not None)
        if gateway is None:
            self._server, self.port = listening(self._settings.listener, handlers, lambda: self._certificates)
        else:
            self._server = listening_for_gateway(gateway, handlers)
        await self._server.start()

    def use_memory(self, memory: BatchMemory) -> None:
        """Share memory with the gateway whose calls follow. Any thread."""
        self._service.memory = memory

    async def reload(self) -> None:
        """Read passwords, rights and certificates again. Raises ValueError without a change."""
        sources, certificates = await asyncio.to_thread(read_security, self._settings, self._log)
        self.calls.use(sources)
        self._certificates = certificates

    async def stop(self, within_s: float) -> None:
        """Refuse new calls, end followers, answer appends that were taken; then close all connections."""
        self.calls.stop()
        await self._server.stop(within_s)
        self.calls.close()

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
                "calls_idle", "counter", "Calls ended because their client was silent.", counts.idle_ended
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
            metric(
                "producers",
                "gauge",
                "Producers whose numbers are kept, since the first one was used.",
                self._service.staging.producer_count,
            ),
            metric("logins_refused", "counter", "Calls without valid credentials.", calls.logins.refused),
            metric(
                "logins_locked_out", "counter", "Calls of these during a lockout.", calls.logins.locked_out
            ),
        ]
