"""Shared parts of all connections of a front, and the handling of each event. One instance a front; loop thread
only.

`enhanced` and `admission` answer CONNECT and AUTH, `subscribing` SUBSCRIBE and UNSUBSCRIBE, `publishing` PUBLISH; the
rest is here.
"""

import functools
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from mqtt_front import client_list
from mqtt_front.client_watch import Watches
from mqtt_front.codec import packets
from mqtt_front.delivery.delivery import Delivery
from mqtt_front.delivery.remote_members import RemoteMembers
from mqtt_front.delivery.system_topics import SystemTopics
from mqtt_front.errors import ProtocolViolation
from mqtt_front.handlers import ack as acknowledging
from mqtt_front.handlers import auth, subscribe
from mqtt_front.handlers import publish as publishing
from mqtt_front.ingest.ingest import Ingest
from mqtt_front.ingest.routing import Router
from mqtt_front.kernel import loops
from mqtt_front.metrics import system_counters
from mqtt_front.net.client_protocol import FRONT_BYTES, ClientProtocol
from mqtt_front.net.client_socket import Counts
from mqtt_front.net.connections import Connections
from mqtt_front.net.poller import Poller, PollingLoop
from mqtt_front.protocol.connection import Inbound
from mqtt_front.protocol.events import Acknowledgements, Event, Pings, Publishes
from mqtt_front.reasons import Reason
from mqtt_front.retained.keeper import Appended
from mqtt_front.runtime.loop import Loop
from mqtt_front.runtime.thread_work import Result, ThreadWork
from mqtt_front.runtime.threads import Threads
from mqtt_front.runtime.timer_wheel import TICK_S, TimerWheel
from mqtt_front.runtime.traces import Traces
from mqtt_front.security.guard import Guard
from mqtt_front.sessions.session import Session
from mqtt_front.settings import MqttSettings
from mqtt_front.stored_state import StoredState
from timestone import __version__
from timestone.config import Ack
from timestone.disk.steady_clock import SteadyClock
from timestone.fronts import Documents, Report
from timestone_access.throttled_log import ThrottledLog
from timestone_access.token_bucket import BURST_S, TokenBucket

_PINGRESP = b"\xd0\x00"
_REQUESTS = frozenset((Pings, packets.Subscribe, packets.Unsubscribe, packets.Auth))


def _request_count(event: Event) -> int:
    """Return what an event counts for `client_requests_per_s`."""
    if isinstance(event, Pings):
        return event.ping_count
    if isinstance(event, packets.Subscribe):
        return len(event.requests)
    if isinstance(event, packets.Unsubscribe):
        return len(event.topic_filters)
    return 1


def _inbound(settings: MqttSettings) -> Inbound:
    return Inbound(
        settings.packet_bytes,
        settings.receive_maximum,
        settings.topic_alias_maximum,
        settings.connect_bytes,
        settings.packet_filter_count,
    )


class Broker:
    """Parts of a front and their wiring."""

    report: Report | None = None
    """Takes what happens to clients, for the log of events."""
    moving = False
    """Whether another server continues with the state: clients connect again there, and their wills wait."""
    is_lost = False
    """Whether it does so already: nothing may be stored or answered."""

    def __init__(
        self,
        router: Router,
        documents: Documents,
        loop: Loop,
        settings: MqttSettings,
        ack: Ack,
        *,
        guard: Guard,
        threads: Threads,
        steady: SteadyClock,
        will_grace_s: float = 0.0,
        log: logging.Logger,
    ) -> None:
        self.guard, self.loop, self.router, self.settings = guard, loop, router, settings
        self.ack = ack
        self.log = log
        self.stopping = False
        self.over = router.over
        """Number of refusals by limit."""
        self.memory = bytearray(FRONT_BYTES + settings.receive_bytes)
        """Receive buffer of all clients, with room before it for the beginning of an earlier packet."""
        self.buffer = memoryview(self.memory)[FRONT_BYTES:]
        self.inbound = _inbound(settings)
        self.throttled_log = ThrottledLog(log)
        self.deadlines = TimerWheel(loop)
        self.deadlines.on_tick.append(self._tick)
        self._threads = threads
        self._work = ThreadWork(loop)
        self.state = state = StoredState(
            router,
            documents,
            loop,
            settings,
            functools.partial(publishing.publish_will, self),
            threads=threads,
            steady=steady,
            will_grace_s=will_grace_s,
            log=log,
        )
        self.receipts, self.sessions = state.receipts, state.sessions
        self.retaining, self.wills = state.retaining, state.wills
        self.traces = Traces(settings.traces_per_s, functools.partial(self._report, "trace"))
        self.delivery = self._new_delivery()
        self.ingest = self._new_ingest()
        self.remote_members = self._new_remote_members()
        self.poller: Poller | None = None
        """Reader of the sockets of plain TCP clients, if not left to their transports."""
        self.counts = Counts()
        self.connections = Connections(settings, self.deadlines, loop, self.counts)
        self.unsent = self.connections.unsent
        self.watches = Watches(loop, self._report)
        self.system = SystemTopics(
            functools.partial(system_counters, self), __version__, settings.system_interval_s
        )

    def _new_delivery(self) -> Delivery:
        return Delivery(
            self.loop,
            self._threads.read,
            self.throttled_log,
            self.sessions,
            self.state.time,
            self._threads.remote,
            traces=self.traces,
        )

    def _new_ingest(self) -> Ingest:
        settings = self.settings
        return Ingest(
            self.router,
            self.loop,
            self.throttled_log,
            ack=self.ack,
            total_bytes=settings.submitted_bytes,
            client_bytes=settings.client_submitted_bytes,
            share_bytes_per_s=settings.client_share_bytes_per_s,
            packet_bytes=settings.packet_bytes,
            settled=self.receipts.settled,
            traces=self.traces,
            appended=self._appended,
            written=self.delivery.serve_woken,
        )

    def _new_remote_members(self) -> RemoteMembers:
        logs = {log.name: log for log in self.router.own_logs}
        groups, save = self.router.groups, self.sessions.save_groups
        return RemoteMembers(self.loop, groups, logs, self.read, save, self.throttled_log)

    def _report(self, event: str, facts: Mapping[str, Any]) -> None:
        if self.report is not None:
            self.report(event, facts)

    def _tick(self) -> None:
        self.state.tick()
        self.traces.tick()
        self.unsent.tick()
        if (branches := self.router.groups.branches) is not None:
            branches.tick()
            self.remote_members.tick()
        self._appended(())  # by others, and plain ones
        self.system.tick(
            link.session for link in self.connections.links if link.connected and link.session is not None
        )

    def begin(self) -> None:
        """Start the clock, and share subscriptions with other homes, if there are any."""
        self.deadlines.start()
        if (branches := self.router.groups.branches) is not None:
            self.remote_members.open()
            branches.open(self.loop)

    def poll(self, loop: PollingLoop) -> None:
        """Read plain TCP clients with the kernel from now on, if it is available."""
        if loops.Sockets is not None:
            self.poller = Poller(self, loop)
            self.ingest.acknowledge_all = self.poller.acknowledge

    def _appended(self, appended: Sequence[Appended]) -> None:
        self.retaining.follow(appended)
        if self.retaining.expected and self.ingest.settled:
            self.retaining.forget_expected()

    def save(self) -> None:
        """Start saving what has changed. Called at intervals."""
        if self.router.partitions is not None and self.ingest.settled:
            self.receipts.none_is_open()
        self.state.save()

    @property
    def idle(self) -> bool:
        """Return whether nothing waits for the disk."""
        return self.ingest.settled and self.state.saved

    @property
    def goodbye(self) -> Reason:
        """Return the reason for clients when the server stops."""
        goes_on = self.moving or self.settings.server_reference is not None
        return Reason.USE_ANOTHER_SERVER if goes_on else Reason.SERVER_SHUTTING_DOWN

    def lose(self) -> None:
        """Stop at once, because another server has the state by now: nothing more is stored or acknowledged."""
        self.stopping = self.moving = self.is_lost = True
        for link in list(self.connections.links):
            link.end(self.goodbye, "another node leads")
        self.remote_members.close()
        self.router.groups.close()
        self.deadlines.stop()
        if self.poller is not None:
            self.poller.stop()
            self.poller = None

    def read(self, work: Callable[[], Result], then: Callable[[Result | Exception], None]) -> None:
        """Run `work` in a thread that may read the disk, and wait for a bucket where a log has segments there only;
        `then` is called with its result or its error."""
        remote = any(log.history is not None for log in self.router.logs)
        self._work.run(self._threads.remote if remote else self._threads.read, work, then)

    # Called by client protocols.

    def arrived(self, link: ClientProtocol) -> None:
        """Handle an accepted socket."""
        self.counts.accepted += 1
        link.number = self.counts.accepted
        if (partitions := self.router.partitions) is not None:  # the parts of a front have different numbers
            link.number = link.number * partitions.count + partitions.home
        self.connections.add(link)

    def new_rates(self) -> tuple[TokenBucket | None, TokenBucket | None] | None:
        """Return the rate limits of a new client; None without limits."""
        return publishing.rates(self.settings, self.deadlines.now)

    def departed(self, link: ClientProtocol) -> None:
        """Handle a closed socket."""
        self.connections.remove(link)
        if self.report is not None and link.began_us:
            ended = {"reason": link.ended_by, "counts": link.traffic._asdict()}
            self.report("disconnected", {**client_list.facts(link), **ended})

    def closing(self, link: ClientProtocol, *, linger: bool) -> bool:
        """Note that a socket will be closed: see `Connections.closing`."""
        return self.connections.closing(link, linger=linger)

    def gone(
        self,
        link: ClientProtocol,
        how: str,
        level: int = logging.INFO,
        limit: str | None = None,
        reason: str = "connection_lost",
    ) -> None:
        """Handle the end of a client's connection, from either side. Called twice for most; the second call has no
        effect. A refusal is logged as a warning, throttled if `limit` names the reason; any other end at `level`.
        reason: counted; one of a fixed set."""
        session, link.session = link.session, None
        if session is None:
            if not link.connected and how != "lost":
                self.counts.refused[reason] += 1
                if limit is None:
                    self.log.warning("%r refused: %s", link, how)
                else:
                    self.throttled_log.warn(f"refused {limit} {link.address}", f"{link!r} refused: {how}")
            return
        self.counts.ended[reason] += 1
        link.ended_by = reason
        self.log.log(level, "%r disconnected: %s", link, how)
        session.client = None
        session.detach()
        will, link.will = link.will, None
        if self.is_lost:
            return
        self.sessions.disconnect(session)
        if will is not None and not self.moving:
            if link.connected:
                self.wills.left(will, session.expiry_s)
            else:
                self.wills.revoke(will)  # it disconnected before it was admitted

    def moved(self, session: Session, count: int) -> None:
        """Note room for `count` more deliveries."""
        if count:
            if session.expiry_s:
                self.sessions.changed(session)
            self.delivery.resume(session)

    def publish(self, link: ClientProtocol, run: Publishes) -> None:
        """Handle publishes of a client. Raises MqttError."""
        publishing.publish(self, link, run)

    def settled(self, key: str, packet_ids: list[int], *, stored: bool) -> None:
        """Note that publishes of a session at QoS 2 are in the log, or failed."""
        self.state.settled(key, packet_ids, stored=stored)

    def handle(self, link: ClientProtocol, event: Event) -> None:
        """Handle any other event. Raises MqttError."""
        if self.settings.client_requests_per_s and type(event) in _REQUESTS:
            self._spend_requests(link, _request_count(event))
        self._HANDLERS[type(event)](self, link, event)

    def _spend_requests(self, link: ClientProtocol, count: int) -> None:
        limit = self.settings.client_requests_per_s
        if link.requests is None:
            link.requests = TokenBucket(limit, self.deadlines.now, TICK_S)
        if not link.requests.spend(count, self.deadlines.now):
            message = f"more than {limit} requests a second for {BURST_S} seconds"
            raise ProtocolViolation(message, Reason.MESSAGE_RATE_TOO_HIGH, "client_requests_per_s")

    def _ping(self, link: ClientProtocol, event: Pings) -> None:
        link.deliver(_PINGRESP * event.ping_count, event.ping_count)

    def _disconnect(self, link: ClientProtocol, event: packets.Disconnect) -> None:
        session = link.session
        if session is None:
            link.turn_away("it left during its enhanced authentication")
            return
        expiry_s = event.properties.session_expiry_interval
        if expiry_s is not None:
            if expiry_s and not session.expiry_s:
                raise ProtocolViolation("DISCONNECT sets a session expiry interval, CONNECT had none")
            session.expiry_s = min(expiry_s, self.settings.session_expiry_max_s)
        if event.reason == Reason.SUCCESS:
            self.revoke_will(link)
        self.gone(link, f"by the client ({Reason(event.reason).name})", reason="client_disconnect")
        link.close()

    _HANDLERS: ClassVar[dict[type, Callable[["Broker", ClientProtocol, Any], None]]] = {
        Acknowledgements: acknowledging.acknowledged,
        Pings: _ping,
        packets.Disconnect: _disconnect,
        packets.Connect: auth.connect,
        packets.Subscribe: subscribe.subscribe,
        packets.Unsubscribe: subscribe.unsubscribe,
        packets.Auth: auth.authenticate,
    }

    def revoke_will(self, link: ClientProtocol) -> None:
        """Drop the client's will."""
        will, link.will = link.will, None
        if will is not None:
            self.wills.revoke(will)

    def judge_anew(self) -> None:
        """Apply changed users and rules: disconnect clients that are not permitted any more, and update the rights
        of the others."""
        for link in list(self.connections.links):
            if link.identity is None:
                continue
            if not self.guard.still_holds(link.identity):
                link.end(Reason.NOT_AUTHORIZED, "its login is no longer valid")
            elif link.session is not None:
                session = link.session
                link.permissions = session.permissions = self.guard.permissions(link.identity, link.client_id)
                if link.will is not None and not link.may_write(link.will.will.topic):
                    self.revoke_will(link)
                for feed in session.feeds.values():
                    feed.forget_grants()
                if link.connected:
                    self.delivery.start(session)

    def new_client_id(self) -> str:
        """Return a new, unused client id, of this home."""
        partitions = self.router.partitions
        while True:
            client_id = f"auto-{secrets.token_hex(12)}"
            if partitions is None or partitions.of_client(client_id) == partitions.home:
                return client_id
