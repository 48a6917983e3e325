"""The MQTT front as `timestone serve` runs it: opens the logs, starts the parts, stops them in order."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from mqtt_front.broker import Broker
from mqtt_front.ingest.routing import Router
from mqtt_front.listener import Listener
from mqtt_front.listener_settings import ListenerSettings
from mqtt_front.metrics import GAUGES, counters
from mqtt_front.net.descriptor_limit import allow_open_files
from mqtt_front.net.tls_context import tls_context
from mqtt_front.runtime.shares import Shares
from mqtt_front.security.guard import Guard
from mqtt_front.security.sources import Sources
from mqtt_front.settings import MqttSettings
from timestone.address import shown_address
from timestone.config import Ack
from timestone.record import HEADER_BLOCK_BYTES_MAX
from timestone.store import Store

_SETTLE_S = 5.0
_LINGER_S = 0.05
"""How long the server stays when all that is left is to let clients read why it goes."""
_OTHER_FILES = 1000
"""Beside those that are connected: connections that are refused or ending, segments, the catalogue."""
_READ_THREADS = 2
_LOGIN_THREADS = 2
"""Passwords that are checked at a time: each takes a processor and 19 MiB for some tens of milliseconds."""
_POLL_S = 0.005


class MqttFront:
    """MQTT 3.1, 3.1.1 and 5 over TCP in front of the logs of a store. Runs in any asyncio event loop."""

    name: ClassVar[str] = "mqtt"
    gauges: ClassVar[frozenset[str]] = GAUGES

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
        self._login_executor = ThreadPoolExecutor(_LOGIN_THREADS, "mqtt-logins")
        self._read_executor = ThreadPoolExecutor(_READ_THREADS, "mqtt-catch-up")
        self._broker: Broker | None = None
        self._listeners: list[Listener] = []
        self._saving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the logs, load the sessions, listen. Clients can connect when it returns. A front starts once: not
        again after it was stopped, nor after it could not listen. Raises OSError, ValueError."""
        loop = asyncio.get_running_loop()
        router = await loop.run_in_executor(None, self._open_logs)
        guard = Guard(self._settings, loop, self._login_executor, log=self._log)
        sources, contexts = await loop.run_in_executor(None, self._read_security, guard)
        guard.use(sources)
        broker = self._broker = Broker(
            router,
            self._store.documents,
            loop,
            self._settings,
            self._ack,
            guard=guard,
            save_executor=self._save_executor,
            read_executor=self._read_executor,
            steady=self._store.steady_clock,
            log=self._log,
        )
        broker.poll(loop)
        await loop.run_in_executor(self._save_executor, broker.load)
        broker.wills.publish_due()
        await self._until(lambda: broker.wills.saved)  # who connects from now on has missed them
        broker.deadlines.start()
        self._saving = loop.create_task(self._save_now_and_then(broker))
        self._allow_connections()
        try:
            await self._listen(broker, contexts)
        except BaseException:
            # Nobody stops what has not started; the loop of a program that continues would keep all of it running.
            await self.stop()
            raise

    def _allow_connections(self) -> None:
        needed = self._settings.connection_count + _OTHER_FILES
        possible = allow_open_files(needed)
        if possible is not None:
            self._log.warning(
                "%d connections need %d open files; this system allows %d (ulimit -Hn): then clients have to wait",
                self._settings.connection_count,
                needed,
                possible,
            )

    async def _listen(self, broker: Broker, contexts: Sequence[ssl.SSLContext | None]) -> None:
        for settings, context in zip(self._settings.all_listeners, contexts, strict=True):
            listener = Listener(broker, settings, self._log, tls=context)
            await listener.start()
            self._listeners.append(listener)
            if not (settings.is_local or settings.certificate or self._settings.lets_anonymous_in(settings)):
                self._log.warning(
                    "passwords cross the network in clear text on %s: give it a certificate", settings.address
                )

    def _read_security(self, guard: Guard) -> tuple[Sources, list[ssl.SSLContext | None]]:
        """Users, rules and keys, and the certificates of each listener. Touches the disk. Raises ValueError."""
        try:
            contexts = [
                None if listener.certificate is None else tls_context(listener)
                for listener in self._settings.all_listeners
            ]
            return guard.read(), contexts
        except OSError as error:
            raise ValueError(f"{error.filename}: {error.strerror}") from error

    async def reload(self) -> None:
        """Read passwords, access rules, keys and certificates again and apply them, also to connected clients. Raises
        ValueError for what cannot be used; then everything stays as it was."""
        broker = self._broker
        if broker is None:
            return
        loop = asyncio.get_running_loop()
        sources, contexts = await loop.run_in_executor(None, self._read_security, broker.guard)
        broker.guard.use(sources)
        for listener, context in zip(self._listeners, contexts, strict=True):
            listener.tls = context
        broker.judge_anew()

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
        shares = Shares(settings.user_share_percent, users=settings.knows_users)
        return Router(
            logs,
            routes,
            topic_levels=settings.topic_levels,
            topic_bytes=settings.topic_bytes,
            shares=shares,
            owner_topic_count=settings.client_topic_count,
        )

    async def _save_now_and_then(self, broker: Broker) -> None:
        while True:
            await asyncio.sleep(self._settings.session_save_ms / 1000)
            broker.save()

    async def stop(self) -> None:
        """Accept nobody, settle and acknowledge what came, close connections, publish wills that have no delay, save
        sessions and the other wills."""
        broker = self._broker
        if broker is None:
            return
        broker.stopping = True
        for listener in self._listeners:
            listener.stop()
        if self._saving is not None:
            self._saving.cancel()
        for link in list(broker.links):
            link.hold()
        await self._until(lambda: broker.ingest.settled)
        for link in list(broker.links):
            link.end(broker.goodbye, "the server stops")
        await self._until(lambda: broker.idle and not broker.linked_count)
        await self._until(lambda: not broker.links, _LINGER_S)
        for link in list(broker.links):
            link.abort()
        broker.deadlines.stop()
        if broker.poller is not None:
            broker.poller.stop()
        try:
            await asyncio.get_running_loop().run_in_executor(self._save_executor, broker.retaining.release)
        except OSError as error:
            self._log.error("retention waits for retained messages that are saved: %s", error)
        self._read_executor.shutdown(wait=False, cancel_futures=True)
        self._save_executor.shutdown(wait=False)
        self._login_executor.shutdown(wait=False, cancel_futures=True)
        self._broker = None

    async def _until(self, done: Callable[[], bool], within_s: float = _SETTLE_S) -> None:
        """Wait for what other callbacks bring about, but not without end: a stop ends within seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while not done() and loop.time() < deadline:
            await asyncio.sleep(_POLL_S)

    def describe(self) -> list[str]:
        """Lines for people: where it listens, and what its acknowledgements mean."""
        settings = self._settings
        lines = [
            f"mqtt on {address}{_layers(listener)}, MQTT 3.1, 3.1.1 and 5, ack {self._ack.value}, {self._who(listener)}"
            for listener, address in zip(settings.all_listeners, self._addresses(), strict=True)
        ]
        lines += [f"mqtt {route.filter} to log {route.log}" for route in settings.routes]
        others = "other topics" if settings.routes else "all topics"
        return [*lines, f"mqtt {others} to log {settings.default_log}"]

    def status(self) -> dict[str, Any]:
        """Addresses, ack level and counters, for machines."""
        counts = counters(self._broker) if self._broker is not None else {}
        addresses = self._addresses()
        listeners = [
            {"address": address, "protocol": listener.protocol}
            for listener, address in zip(self._settings.all_listeners, addresses, strict=True)
        ]
        return {"address": addresses[0], "listeners": listeners, "ack": self._ack.value, **counts}

    def _addresses(self) -> list[str]:
        """Where each listener listens, with the port it got; as it was asked for while it does not."""
        listening = [shown_address(*one.address) for one in self._listeners if one.listening]
        return listening or [one.address for one in self._settings.all_listeners]

    def _who(self, listener: ListenerSettings) -> str:
        """Who may come in there, for people."""
        settings = self._settings
        ways = {
            "client certificates": listener.user_from != "login",
            "tokens": settings.jwt.enabled,
            "passwords": settings.password_file is not None,
            **{f"plug-in {name}": True for name in settings.authenticators},
            "anonymous": settings.lets_anonymous_in(listener),
        }
        return ", ".join(name for name, possible in ways.items() if possible)


def _layers(listener: ListenerSettings) -> str:
    return "" if listener.protocol == "TCP" else f" ({listener.protocol})"
