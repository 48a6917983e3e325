"""The MQTT front as `timestone serve` runs it: opens the logs, starts the parts, stops them in order."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from mqtt_front.broker import Broker
from mqtt_front.codec.reasons import Reason
from mqtt_front.listener import Listener
from mqtt_front.routing import Router
from mqtt_front.settings import MqttSettings
from timestone.config import Ack
from timestone.record import HEADER_BLOCK_BYTES_MAX
from timestone.store import Store

_SETTLE_S = 5.0
_READ_THREADS = 2
_POLL_S = 0.005


class MqttFront:
    """MQTT 3.1, 3.1.1 and 5 over TCP in front of the logs of a store. Runs in any asyncio event loop."""

    name: ClassVar[str] = "mqtt"

    @classmethod
    def settings(cls) -> type[MqttSettings]:
        """The class of its settings."""
        return MqttSettings

    def __init__(self, store: Store, settings: MqttSettings, *, log: logging.Logger) -> None:
        """Raises ValueError when the settings do not fit the store."""
        self._store = store
        self._settings = settings
        self._log = log
        self._ack = Ack(settings.ack or store.config.ack)
        self._save_executor = ThreadPoolExecutor(1, "mqtt-sessions")
        self._read_executor = ThreadPoolExecutor(_READ_THREADS, "mqtt-catch-up")
        self._broker: Broker | None = None
        self._listener: Listener | None = None
        self._saving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the logs, load the sessions, listen. Clients can connect when it returns. Raises OSError,
        ValueError."""
        loop = asyncio.get_running_loop()
        router = await loop.run_in_executor(None, self._open_logs)
        broker = self._broker = Broker(
            router,
            self._store.documents,
            loop,
            self._settings,
            self._ack,
            save_executor=self._save_executor,
            read_executor=self._read_executor,
            log=self._log,
        )
        await loop.run_in_executor(self._save_executor, broker.sessions.load)
        broker.deadlines.start()
        self._saving = loop.create_task(self._save_now_and_then(broker))
        self._listener = Listener(broker, self._log)
        await self._listener.start(*self._settings.address)

    def _open_logs(self) -> Router:
        """Each log that topics are routed to; made when it is missing. Touches the disk."""
        settings = self._settings
        names = list(dict.fromkeys([settings.default_log, *(route.log for route in settings.routes)]))
        logs = [self._store.log(name) for name in names]
        for log in logs:
            if log.config.record_bytes < settings.packet_bytes + HEADER_BLOCK_BYTES_MAX:
                raise ValueError(
                    f"packet_bytes is {settings.packet_bytes}, but log {log.name} takes records of "
                    f"{log.config.record_bytes} bytes, of which up to {HEADER_BLOCK_BYTES_MAX} may be headers"
                )
        routes = [(route.filter, names.index(route.log)) for route in settings.routes]
        return Router(logs, routes, topic_levels=settings.topic_levels)

    async def _save_now_and_then(self, broker: Broker) -> None:
        while True:
            await asyncio.sleep(self._settings.session_save_ms / 1000)
            broker.sessions.save_changed()

    async def stop(self) -> None:
        """Accept nobody, settle and acknowledge what came, publish wills, close connections, save
        sessions."""
        broker, listener = self._broker, self._listener
        if broker is None:
            return
        broker.stopping = True
        if listener is not None and listener.listening:
            listener.stop()
        if self._saving is not None:
            self._saving.cancel()
        for link in list(broker.links):
            link.hold()
        await self._until(lambda: broker.ingest.settled)
        for link in list(broker.links):
            link.end(Reason.SERVER_SHUTTING_DOWN, "the server stops")
        broker.wills.publish_all()
        await self._until(lambda: broker.ingest.settled and broker.sessions.saved and not broker.links)
        for link in list(broker.links):
            link.abort()
        broker.deadlines.stop()
        self._read_executor.shutdown(wait=False, cancel_futures=True)
        self._save_executor.shutdown(wait=False)
        self._broker = None

    async def _until(self, done: Any) -> None:
        """Wait for what other callbacks bring about, but not for ever: a stop ends within seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _SETTLE_S
        while not done() and loop.time() < deadline:
            await asyncio.sleep(_POLL_S)

    def describe(self) -> list[str]:
        """Lines for people: where it listens, and what its acknowledgements mean."""
        settings = self._settings
        lines = [f"mqtt on {self._shown_address()}, MQTT 3.1, 3.1.1 and 5, ack {self._ack.value}, anonymous"]
        lines += [f"mqtt {route.filter} to log {route.log}" for route in settings.routes]
        others = "other topics" if settings.routes else "all topics"
        return [*lines, f"mqtt {others} to log {settings.default_log}"]

    def status(self) -> dict[str, Any]:
        """Address, ack level and counters, for machines."""
        counts = self._broker.status() if self._broker is not None else {}
        return {"address": self._shown_address(), "ack": self._ack.value, **counts}

    def _shown_address(self) -> str:
        if self._listener is None or not self._listener.listening:
            return self._settings.listen
        host, port = self._listener.address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
