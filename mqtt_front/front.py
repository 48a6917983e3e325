"""MQTT front as `timestone serve` runs it: opens the logs, starts the parts, stops them in order.

On a server of its own it does so once. In a cluster each node has one: its doors are open throughout, and its parts
run while its node leads."""

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar, TypeVar

from mqtt_front.administration import Administration, slowness
from mqtt_front.broker import Broker
from mqtt_front.errors import MqttError
from mqtt_front.handlers.publish import publish_own
from mqtt_front.ingest.routing import Router, check_room
from mqtt_front.listener import Listener, door_layer, listening_socket, websocket_adapter
from mqtt_front.listener_settings import ListenerSettings
from mqtt_front.metrics import counters, metrics
from mqtt_front.protocol.arrival import client_id_of
from mqtt_front.retained.views import RetainedViews
from mqtt_front.runtime.threads import Threads
from mqtt_front.runtime.user_share import Shares
from mqtt_front.security.guard import Guard
from mqtt_front.security.sources import Sources, read_sources
from mqtt_front.settings import MqttSettings
from timestone.address import shown_address
from timestone.config import Ack, LogConfig, StoreConfig
from timestone.disk.steady_clock import SteadyClock
from timestone.format.names import is_server_log
from timestone.fronts import Arrived, Correspondent, Documents, Door, Partitions, Report
from timestone.log import Log
from timestone.metrics.metric import Metric, added
from timestone.store import Store
from timestone_access.descriptor_limit import allow_open_files
from timestone_access.identity import Credentials, Identity
from timestone_access.lockout import failed_logins
from timestone_access.tls_context import certificate_name, tls_context

_SETTLE_S = 5.0
_LINGER_S = 0.05
"""Time for clients to read the reason, when nothing else is left to do at a stop."""
_OTHER_FILES = 1000
"""Open files besides those of clients: refused or closing connections, segments, the catalogue."""
_GOODBYE_S = 1.0
"""Time for clients to read that another node leads."""
_POLL_S = 0.005

Answer = TypeVar("Answer")


class MqttFront(Administration):
    """MQTT 3.1, 3.1.1 and 5 over TCP in front of the logs of a store. Runs in any asyncio event loop."""

    name: ClassVar[str] = "mqtt"

    @classmethod
    def settings(cls) -> type[MqttSettings]:
        """Return the class of its settings."""
        return MqttSettings

    @classmethod
    def check(cls, settings: MqttSettings, config: StoreConfig, existing: Mapping[str, LogConfig]) -> None:
        """Read every file that the settings name, and compare packet limits with those of the logs. Creates nothing.
        Raises ValueError."""
        for name in settings.logs:
            check_room(settings.packet_bytes, name, existing.get(name, config.log))
        if any(listener.websocket for listener in settings.all_listeners):
            websocket_adapter()
        # Warnings about the files are logged when they are read for use.
        _read_security(settings, logging.Logger("check", logging.CRITICAL))

    def __init__(self, store: Store, settings: MqttSettings, *, log: logging.Logger) -> None:
        """Raises ValueError if the settings do not fit the store."""
        self._store = store
        self._settings = settings
        self._log = log
        self._ack = Ack(settings.ack or store.config.ack)
        self._threads: Threads | None = None
        self._broker: Broker | None = None
        self._report: Report | None = None
        self._final: Sequence[Metric] = ()
        self._listeners: list[Listener] = []
        self._saving: asyncio.Task[None] | None = None
        self._doors: list[Door] = []
        """Open doors of a node of a cluster."""
        self._door_guard: Guard | None = None
        self._checked: set[Log] = set()
        self._homes: dict[int, MqttFront] = {}
        """In a cluster with several shards: the fronts for the clients of those that this node leads."""
        self._partitions: Partitions | None = None
        self._views: RetainedViews | None = None

    async def start(self) -> None:
        """Open the logs, load the sessions, and listen. On return, clients can connect. Raises OSError, ValueError."""
        await self._serve(self._store.documents, self._store.steady_clock, 0.0)

    async def _serve(self, documents: Documents, clock: SteadyClock, will_grace_s: float) -> None:
        loop, threads = asyncio.get_running_loop(), Threads()
        router = await loop.run_in_executor(None, self._open_logs)
        failed = failed_logins(self._store)
        guard = Guard(self._settings, loop, threads.login, log=self._log, failed=failed)
        sources, contexts = await loop.run_in_executor(None, _read_security, self._settings, self._log)
        guard.use(sources)
        broker = self._broker = Broker(
            router,
            documents,
            loop,
            self._settings,
            self._ack,
            guard=guard,
            threads=threads,
            steady=clock,
            will_grace_s=will_grace_s,
            log=self._log,
        )
        self._threads = threads
        broker.report = self._report
        broker.poll(loop)
        await loop.run_in_executor(threads.save, broker.state.load)
        broker.wills.publish_due()
        await self._until(lambda: broker.wills.saved)  # clients that connect from now on have missed them
        broker.begin()
        self._saving = loop.create_task(self._save_now_and_then(broker))
        self._allow_connections()
        try:
            await self._listen(broker, contexts)
        except BaseException:
            # Otherwise all of it would keep running in a program that continues.
            await self.stop()
            raise

    # In a cluster: see `Replicated`.

    @property
    def log_names(self) -> Sequence[str]:
        """Return the logs that topics go to."""
        return self._settings.logs

    @property
    def doors(self) -> Sequence[Door]:
        """Return the open doors."""
        return self._doors

    def open_doors(self) -> None:
        """Bind the addresses of all listeners. Raises OSError, ValueError."""
        self._ack = Ack.SYNCED  # what the replicas do, at any other level, too
        sources, contexts = _read_security(self._settings, self._log)
        loop, failed = asyncio.get_running_loop(), failed_logins(self._store)
        self._door_threads = ThreadPoolExecutor(1, "mqtt-door-logins")
        self._door_guard = Guard(self._settings, loop, self._door_threads, log=self._log, failed=failed)
        self._door_guard.use(sources)
        for settings, context in zip(self._settings.all_listeners, contexts, strict=True):
            listening = listening_socket(settings, is_shared=self._settings.share_ports)
            kind = settings.user_from
            user = (lambda certificate: None) if kind == "login" else partial(certificate_name, kind=kind)
            address = shown_address(*listening.getsockname()[:2])
            limit = self._settings.connect_bytes
            client_id = partial(client_id_of, connect_bytes=limit)
            layer = door_layer(self._settings, settings, self._log)
            self._doors.append(Door(address, listening, context, user, client_id, layer))

    def close_doors(self) -> None:
        """Listen no more."""
        for door in self._doors:
            door.socket.close()
        self._doors.clear()
        if self._door_guard is not None:
            self._door_threads.shutdown(wait=False, cancel_futures=True)

    async def lead(
        self,
        documents: Documents,
        clock: SteadyClock,
        *,
        will_grace_s: float,
        partitions: Partitions | None = None,
    ) -> None:
        """Serve clients from these documents; with several shards, by a front for the clients of each."""
        if partitions is None:
            await self._serve(documents, clock, will_grace_s)
            return
        if self._views is None:
            self._views = RetainedViews(asyncio.get_running_loop(), self._log, self._shares())
        home = self._homes[partitions.home] = MqttFront(self._store, self._settings, log=self._log)
        home._ack, home._report, home._doors = self._ack, self._report, self._doors
        home._partitions, home._views = partitions, self._views
        await home._serve(documents, clock, will_grace_s)

    def client_count(self, shard: int = 0) -> int:
        """Return how many clients of a shard are connected."""
        broker = self._homes.get(shard, self)._broker
        return broker.connections.count if broker is not None else 0

    async def leave(self, shard: int = 0) -> None:
        """Stop in order; another node continues with the sessions, and with the wills of connected clients."""
        if shard in self._homes:
            await self._homes[shard].leave()
            self._left(shard)
            return
        if self._broker is not None:
            self._broker.moving = True
        await self.stop()

    def _left(self, shard: int) -> None:
        self._homes.pop(shard, None)
        if not self._homes and self._views is not None:
            self._views.end()
            self._views = None

    def lose(self, shard: int = 0) -> None:
        """Stop at once, without a further write."""
        if shard in self._homes:
            self._homes[shard].lose()
            self._left(shard)
            return
        broker, self._broker = self._broker, None
        self._stop_listening()
        if broker is not None:
            broker.lose()
            # After the goodbye, which a client may not read.
            loop = asyncio.get_running_loop()
            for link in list(broker.connections.links):
                loop.call_later(_GOODBYE_S, link.abort)
        if self._threads is not None:
            self._threads.end()

    def admit(self, client: Arrived) -> asyncio.BufferedProtocol | None:
        """Return the protocol of a client that others have accepted at a door of this node or another one."""
        if client.shard in self._homes:
            return self._homes[client.shard].admit(client)
        if self._broker is None or self._broker.stopping or not 0 <= client.door < len(self._listeners):
            return None
        return self._listeners[client.door].admit(client)

    def heard(self, shard: int, home: int, data: bytes, correspondent: Correspondent) -> None:
        """Pass a message of the front of another home on."""
        front = self._homes.get(shard)
        if front is not None and front._broker is not None:
            front._broker.remote_members.heard(home, data, correspondent)

    # What starts and ends with the parts.

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
        doors = [door.socket for door in self._doors] or [None] * len(contexts)
        for settings, context, door in zip(self._settings.all_listeners, contexts, doors, strict=True):
            listener = Listener(broker, settings, self._log, tls=context)
            if self._partitions is None:  # else others accept
                await listener.start(door)
            if self._broker is not broker:  # lost in between
                listener.stop()
                return
            self._listeners.append(listener)
            if not (settings.is_local or settings.certificate or self._settings.lets_anonymous_in(settings)):
                self._log.warning(
                    "passwords cross the network in clear text on %s: give it a certificate", settings.address
                )

    async def reload(self) -> None:
        """Read passwords, access rules, keys and certificates again and apply them, also to connected clients.
        Raises ValueError without a change if one is invalid."""
        broker = self._broker
        if broker is None and not self._doors:
            return
        loop = asyncio.get_running_loop()
        sources, contexts = await loop.run_in_executor(None, _read_security, self._settings, self._log)
        if self._door_guard is not None:
            self._door_guard.use(sources)
        if self._doors:
            renewed = zip(self._doors, contexts, strict=True)
            self._doors = [door._replace(tls=context) for door, context in renewed]
        for front in (self, *self._homes.values()):
            if front._broker is not None:
                front._use(front._broker, sources, contexts)

    def _use(self, broker: Broker, sources: Sources, contexts: Sequence[ssl.SSLContext | None]) -> None:
        broker.guard.use(sources)
        for listener, context in zip(self._listeners, contexts, strict=True):
            listener.tls = context
        broker.judge_anew()

    def _open_logs(self) -> Router:
        """Open each log that topics are routed to, creating missing ones but on a node of a cluster, where one may have
        been deleted since. Touches the disk."""
        settings = self._settings
        names, partitions = settings.logs, self._partitions
        shards = range(1 if partitions is None else partitions.count)
        is_node = bool(self._doors)
        logs = [self._store.log(name, shard, create=not is_node) for name in names for shard in shards]
        for log in logs:
            check_room(settings.packet_bytes, log.name, log.config)
            if log not in self._checked:
                self._checked.add(log)
                log.config_checks.append(partial(check_room, settings.packet_bytes, log.name))
        routes = [(route.filter, names.index(route.log)) for route in settings.routes]
        views = {} if partitions is None or self._views is None else self._views.open(partitions, logs)
        # In a cluster, a session would meet the records of another node.
        own = [] if is_node else [one for one in self._store.log_names(server=True) if is_server_log(one[0])]
        return Router(
            logs,
            routes,
            topic_levels=settings.topic_levels,
            topic_bytes=settings.topic_bytes,
            shares=self._shares(),
            owner_topic_count=settings.client_topic_count,
            server_logs=[self._store.log(*one) for one in own],
            partitions=partitions,
            views=views,
        )

    def _shares(self) -> Shares:
        return Shares(self._settings.user_share_percent, users=self._settings.knows_users)

    async def _save_now_and_then(self, broker: Broker) -> None:
        while True:
            await asyncio.sleep(self._settings.session_save_ms / 1000)
            broker.save()
            if self._views is not None:
                self._views.follow()

    def _stop_listening(self) -> None:
        """Accept no client any more, and save nothing at intervals."""
        for listener in self._listeners:
            listener.stop()
        self._listeners.clear()
        if self._saving is not None:
            self._saving.cancel()

    async def stop(self) -> None:
        """Stop accepting, settle and acknowledge publishes, close connections, publish wills without a delay, and
        save sessions and the other wills."""
        broker = self._broker
        if broker is None:
            return
        broker.stopping = True
        broker.remote_members.close()
        self._stop_listening()
        for link in list(broker.connections.links):
            link.hold()
        await self._until(lambda: broker.ingest.settled)
        for link in list(broker.connections.links):
            link.end(broker.goodbye, "another node is to lead" if broker.moving else "the server stops")
        await self._until(lambda: broker.idle and not broker.connections.count)
        await self._until(lambda: not broker.connections.links, _LINGER_S)
        if broker.is_lost:
            return
        for link in list(broker.connections.links):
            link.abort()
        broker.deadlines.stop()
        broker.traces.tick(0)
        if broker.poller is not None:
            broker.poller.stop()
        assert self._threads is not None
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads.save, broker.retaining.release)
        except OSError as error:
            self._log.error("retention waits for retained messages that are saved: %s", error)
        self._threads.end()
        self._final = () if self._doors else metrics(broker)
        self._broker = None

    async def _until(self, done: Callable[[], bool], within_s: float = _SETTLE_S) -> None:
        """Wait for what other callbacks bring about, up to a limit: a stop ends within seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while not done() and loop.time() < deadline:
            await asyncio.sleep(_POLL_S)

    def describe(self) -> list[str]:
        """Return lines for the start message: addresses and the meaning of acknowledgements."""
        settings = self._settings
        lines = [
            f"mqtt on {address}{_layers(listener)}, MQTT 3.1, 3.1.1 and 5, ack {self._ack.value}, "
            f"{settings.who_may_connect(listener)}"
            for listener, address in zip(settings.all_listeners, self._addresses(), strict=True)
        ]
        lines += [f"mqtt {route.filter} to log {route.log}" for route in settings.routes]
        others = "other topics" if settings.routes else "all topics"
        return [*lines, f"mqtt {others} to log {settings.default_log}"]

    def status(self) -> dict[str, Any]:
        """Return addresses, ack level and counters."""
        counts: Counter[str] = Counter()
        for broker in self._brokers:
            counts.update(counters(broker))
        addresses = self._addresses()
        listeners = [
            {"address": address, "protocol": listener.protocol}
            for listener, address in zip(self._settings.all_listeners, addresses, strict=True)
        ]
        return {"address": addresses[0], "listeners": listeners, "ack": self._ack.value, **counts}

    def metrics(self) -> Sequence[Metric]:
        """Return the metrics of the front: none before it runs, the final ones afterwards."""
        found = [metrics(broker) for broker in self._brokers]
        return added(found) if found else self._final

    @property
    def _brokers(self) -> list[Broker]:
        """Return the servers that run: one, or in a cluster one for each shard that this node leads."""
        fronts = (self, *self._homes.values())
        return [front._broker for front in fronts if front._broker is not None]

    def report_to(self, report: Report) -> None:
        """Report clients that connect and connections that end, from now on."""
        self._report = report
        for broker in self._brokers:
            broker.report = report

    async def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool) -> None:
        """Publish a message of the server. Raises ValueError, OSError."""
        brokers = self._brokers
        if not brokers:
            raise OSError("the front does not run")
        limit = self._settings.packet_bytes
        if len(payload) > limit:
            raise ValueError(
                f"invalid payload: expected at most {limit} bytes (packet_bytes), got {len(payload)}"
            )
        try:
            stored = await _answer(partial(publish_own, brokers[0], topic, payload, qos, retain=retain))
        except MqttError as error:
            raise ValueError(str(error)) from None
        if not stored:
            raise OSError("the message could not be stored; the log of the server has the reason")

    async def login(self, user: str, password: str, address: str) -> bool:
        """Return whether the password is that of the user. A failure counts as one of a client at this address."""
        guard = self._guard
        if guard is None:
            return False
        credentials = Credentials(user=user, password=password.encode(), address=address)
        outcome = await _answer(partial(guard.admit, credentials, allow_anonymous=False))
        return isinstance(outcome, Identity)

    def checks(self) -> Mapping[str, str | None]:
        """Return whether clients can connect, and whether their publishes reach the disk in time."""
        broker = self._broker
        if broker is None and self._doors:  # clients are passed on
            return {"listening": None, "settling": slowness(self._brokers)}
        if broker is None or broker.stopping or not self._listeners:
            return {"listening": "it does not run", "settling": None}
        closed = [
            one.address
            for one, socket in zip(self._settings.all_listeners, self._listeners, strict=False)
            if not socket.listening
        ]
        return {
            "listening": f"not listening on {', '.join(closed)}" if closed else None,
            "settling": slowness([broker]),
        }

    def _addresses(self) -> list[str]:
        """Return the addresses of the listeners with the actual ports, or as configured while they do not listen."""
        if self._doors:
            return [door.address for door in self._doors]
        listening = [shown_address(*one.address) for one in self._listeners if one.listening]
        return listening or [one.address for one in self._settings.all_listeners]


async def _answer(ask: Callable[[Callable[[Answer], None]], None]) -> Answer:
    """Return what `ask` passes to the function that it gets, now or later."""
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    ask(lambda answer: None if answered.done() else answered.set_result(answer))  # the caller may have gone
    return await answered


def _read_security(
    settings: MqttSettings, log: logging.Logger
) -> tuple[Sources, list[ssl.SSLContext | None]]:
    """Read users, rules and keys, and the certificates of each listener. Raises ValueError."""
    try:
        contexts = [
            None
            if listener.certificate is None
            else tls_context(listener, protocols=["http/1.1"] if listener.websocket else ["mqtt"])
            for listener in settings.all_listeners
        ]
        return read_sources(settings, log), contexts
    except OSError as error:
        raise ValueError(f"{error.filename}: {error.strerror}") from error


def _layers(listener: ListenerSettings) -> str:
    return "" if listener.protocol == "TCP" else f" ({listener.protocol})"
