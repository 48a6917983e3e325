"""What all connections of a front share, and what it does with each event. One instance a front; loop thread
only.

`enhanced` and `admission` answer CONNECT and AUTH, `subscribing` SUBSCRIBE and UNSUBSCRIBE, `publishing` PUBLISH; the
rest is here.
"""

import functools
import logging
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, ClassVar, TypeVar

from mqtt_front.codec import packets
from mqtt_front.delivery.delivery import Delivery
from mqtt_front.delivery.system_topics import SystemTopics
from mqtt_front.errors import ProtocolViolation
from mqtt_front.handlers import ack as acknowledging
from mqtt_front.handlers import auth, subscribe
from mqtt_front.handlers import publish as publishing
from mqtt_front.ingest import topic_use
from mqtt_front.ingest.ingest import Ingest
from mqtt_front.ingest.routing import Router
from mqtt_front.kernel import loops
from mqtt_front.metrics import Counts, system_counters
from mqtt_front.net.client_protocol import FRONT_BYTES, Link
from mqtt_front.net.outbound_limit import Unsent
from mqtt_front.net.poller import Poller, PollingLoop
from mqtt_front.protocol.connection import Inbound
from mqtt_front.protocol.events import Acknowledgements, Event, Pings, Publishes
from mqtt_front.reasons import Reason
from mqtt_front.retained.keeper import Appended, Retaining
from mqtt_front.runtime.clocks import PassingTime
from mqtt_front.runtime.loop import Loop
from mqtt_front.runtime.mailbox import Mailbox
from mqtt_front.runtime.throttled_log import Complaints
from mqtt_front.runtime.timer_wheel import Deadlines, ticks
from mqtt_front.runtime.token_bucket import BURST_S, Rate
from mqtt_front.runtime.write_behind import Documents, WriteBehind
from mqtt_front.security.guard import Guard
from mqtt_front.sessions.qos2_receipts import Receipts
from mqtt_front.sessions.session import Session
from mqtt_front.sessions.session_document import decode_session
from mqtt_front.sessions.session_store import Sessions
from mqtt_front.settings import MqttSettings
from mqtt_front.wills.will_records import WillRecords
from mqtt_front.wills.wills import Wills
from timestone import __version__
from timestone.config import Ack
from timestone.disk.steady_clock import SteadyClock

Value = TypeVar("Value")
MAXIMUM_QOS = 2
_PINGRESP = b"\xd0\x00"
_REQUESTS = frozenset((Pings, packets.Subscribe, packets.Unsubscribe, packets.Auth))
_CLOSE_S = 5.0
"""How long a closing connection may take to read what was written to it."""
_LINGERING_MAX = 256
"""Connections at a time that are read from, only to throw it away, until their clients have heard why they end."""


def _request_count(event: Event) -> int:
    """What an event counts for `client_requests_per_s`."""
    if isinstance(event, Pings):
        return event.ping_count
    if isinstance(event, packets.Subscribe):
        return len(event.requests)
    if isinstance(event, packets.Unsubscribe):
        return len(event.topic_filters)
    return 1


def _call_all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()


class Broker:
    """The parts, and the wiring between them."""

    def __init__(
        self,
        router: Router,
        documents: Documents,
        loop: Loop,
        settings: MqttSettings,
        ack: Ack,
        *,
        guard: Guard,
        save_executor: Executor,
        read_executor: Executor,
        steady: SteadyClock,
        log: logging.Logger,
    ) -> None:
        self.guard = guard
        self.loop = loop
        self.router = router
        self.settings = settings
        self.ack = ack
        self.log = log
        self.over = router.over
        """By limit: how often a client met it."""
        self.memory = bytearray(FRONT_BYTES + settings.receive_bytes)
        """Where all links receive: `buffer`, and room in front of it for the beginning of a packet that came before."""
        self.buffer = memoryview(self.memory)[FRONT_BYTES:]
        self.inbound = Inbound(
            settings.packet_bytes,
            settings.receive_maximum,
            settings.topic_alias_maximum,
            MAXIMUM_QOS,
            settings.connect_bytes,
            settings.packet_filter_count,
        )
        self.complaints = Complaints(log)
        self.deadlines = Deadlines(loop)
        self._connects = (
            Rate(settings.connects_per_s, self.deadlines.now) if settings.connects_per_s else None
        )
        self.receipts = Receipts(router.logs)
        self.time = PassingTime(steady=steady)
        self.sessions = Sessions(
            documents, loop, save_executor, self.receipts, groups=router.groups, log=log, time=self.time
        )
        self._read_executor = read_executor
        self._reads: Mailbox[Callable[[], None]] = Mailbox(loop, _call_all)
        self.delivery = Delivery(loop, read_executor, self.complaints, self.sessions, self.time)
        self.ingest = Ingest(
            router,
            loop,
            self.complaints,
            ack=ack,
            total_bytes=settings.submitted_bytes,
            client_bytes=settings.client_submitted_bytes,
            share_bytes_per_s=settings.client_share_bytes_per_s,
            packet_bytes=settings.packet_bytes,
            settled=self.receipts.settled,
            appended=self._appended,
            writing=self.delivery.expect_woken,
            written=self.delivery.serve_woken,
        )
        self.retaining = Retaining(
            router.retained,
            documents,
            loop,
            save_executor,
            read_executor,
            count_limit=settings.retained_count,
            bytes_limit=settings.retained_bytes,
            log=log,
            time=self.time,
        )
        self.wills = Wills(
            functools.partial(publishing.publish_will, self),
            WillRecords(router),
            documents,
            loop,
            save_executor,
            log=log,
            time=self.time,
        )
        self._documents = documents
        self._topic_writer = WriteBehind(documents, topic_use.SPACE, loop, save_executor, log=log)
        self.links: dict[Link, None] = {}
        self.lingering: set[Link] = set()
        """Links that have been told why they end, and are not counted as connected any more."""
        self.poller: Poller | None = None
        """What reads the sockets of plain TCP links, where that is not left to their transports."""
        self.counts = Counts()
        self.unsent = Unsent(
            self.links.keys(),
            loop,
            limit_bytes=settings.total_unsent_bytes,
            writer_bytes=settings.unsent_bytes,
            sent_bytes=lambda: self.counts.bytes_sent,
        )
        self.system = SystemTopics(
            functools.partial(system_counters, self), __version__, settings.system_interval_s
        )
        self.stopping = False
        self.deadlines.on_tick += [
            self.time.look,
            self.sessions.expire,
            lambda: router.groups.expire(self.time, settings.queue_expiry_s),
            self.wills.publish_due,
            self.retaining.expire,
            self.unsent.tick,
        ]
        self.deadlines.on_tick.append(lambda: self.system.tick(self.sessions.connected.values()))

    def poll(self, loop: PollingLoop) -> None:
        """Read plain TCP links with the kernel from now on, if it is there."""
        if loops.Sockets is not None:
            self.poller = Poller(self, loop)
            self.ingest.acknowledge_all = self.poller.acknowledge

    # Across restarts.

    def load(self) -> None:
        """Read what an earlier process left. Touches the disk: before the loop serves anybody."""
        self.router.topic_use.restore(self._documents.items(topic_use.SPACE), self.log)
        self.sessions.load()
        self.retaining.load()
        self.wills.load()

    def save(self) -> None:
        """Begin to save what has changed. Called now and then, and until `saved` when the front stops."""
        self.sessions.save_changed()
        self.retaining.save()
        for owner, document in self.router.topic_use.changes().items():
            self._topic_writer.write(owner, document)

    def _appended(self, appended: Sequence[Appended]) -> None:
        self.retaining.follow(appended)
        if self.retaining.expected and self.ingest.settled:
            self.retaining.forget_expected()

    @property
    def idle(self) -> bool:
        """Nothing waits for the disk."""
        documents = (self.sessions, self.wills, self.retaining, self._topic_writer)
        return (
            self.ingest.settled and all(one.saved for one in documents) and not self.router.topic_use.changed
        )

    @property
    def goodbye(self) -> Reason:
        """What clients are told when the server stops."""
        return (
            Reason.SERVER_SHUTTING_DOWN
            if self.settings.server_reference is None
            else Reason.USE_ANOTHER_SERVER
        )

    def read(self, work: Callable[[], Value], then: Callable[[Value | Exception], None]) -> None:
        """Let a thread read something from the disk, and continue with what it found, or why it did not."""

        def run() -> None:
            outcome: Value | Exception
            try:
                outcome = work()
            except Exception as error:
                outcome = error
            self._reads.put(lambda: then(outcome))

        try:
            self._read_executor.submit(run)
        except RuntimeError:  # it is shut down: the front is stopping, and its clients go with it
            return

    # What links report.

    def arrived(self, link: Link) -> None:
        """A socket was accepted."""
        self.counts.accepted += 1
        link.refusal = self._refusal()
        self.links[link] = None
        link.last_seen = self.deadlines.now
        link.allowed_ticks = ticks(self.settings.connect_timeout_ms / 1000)
        self.deadlines.watch(link)

    def _refusal(self) -> ProtocolViolation | None:
        """Why the client of a new connection will not be let in, whoever it is."""
        settings = self.settings
        if settings.redirect:
            return ProtocolViolation(f"clients go to {settings.server_reference}", Reason.SERVER_MOVED)
        if self.linked_count >= settings.connection_count:
            message = f"{settings.connection_count} clients are connected, which is the limit"
            reason = Reason.QUOTA_EXCEEDED if settings.server_reference is None else Reason.USE_ANOTHER_SERVER
            return ProtocolViolation(message, reason, "connection_count")
        if self._connects is not None and not self._connects.spend(1, self.deadlines.now):
            message = f"more than {settings.connects_per_s} connections a second for {BURST_S} seconds"
            return ProtocolViolation(message, Reason.CONNECTION_RATE_EXCEEDED, "connects_per_s")
        return None

    def new_rates(self) -> tuple[Rate | None, Rate | None] | None:
        """How fast a new client may publish; None when there is no limit."""
        return publishing.rates(self.settings, self.deadlines.now)

    def departed(self, link: Link) -> None:
        """A socket is gone."""
        self.links.pop(link, None)
        self.unsent.went_on(link)
        self.lingering.discard(link)
        self.deadlines.forget(link)
        if link.stay is not None:
            self.deadlines.forget(link.stay)

    @property
    def linked_count(self) -> int:
        """Links that count towards the limit of connections."""
        return len(self.links) - len(self.lingering)

    def closing(self, link: Link, *, linger: bool) -> bool:
        """A socket is closed as soon as its peer has read what was written to it, or a deadline is over. Is there room
        to continue reading from it until then, if that is wanted?"""
        linger = linger and len(self.lingering) < _LINGERING_MAX
        if linger:
            self.lingering.add(link)
        link.last_seen = self.deadlines.now
        link.allowed_ticks = ticks(_CLOSE_S)
        self.deadlines.watch(link)
        return linger

    def gone(self, link: Link, how: str, level: int = logging.INFO) -> None:
        """A client is no longer connected, whoever ended it. Called twice for most; the second time does nothing. A
        refusal is a warning in the log, an end what `level` says."""
        session, link.session = link.session, None
        if session is None:
            if not link.connected and how != "lost":
                self.counts.refused += 1
                self.log.warning("%r refused: %s", link, how)
            return
        self.log.log(level, "%r disconnected: %s", link, how)
        session.client = None
        session.detach()
        self.sessions.disconnect(session)
        will, link.will = link.will, None
        if will is not None:
            if link.connected:
                self.wills.left(will, session.expiry_s)
            else:
                self.wills.revoke(will)  # it left before it was let in

    def moved(self, session: Session, count: int) -> None:
        """There is room for `count` more deliveries."""
        if count:
            if session.expiry_s:
                self.sessions.changed(session)
            self.delivery.resume(session)

    def publish(self, link: Link, run: Publishes) -> None:
        """A client published. Raises MqttError."""
        publishing.publish(self, link, run)

    def settled(self, key: str, packet_ids: list[int], *, stored: bool) -> None:
        """Publishes of a session's client at QoS 2 are in the log, or never will be. It may be away by now, or
        connected again."""

        def change(session: Session) -> None:
            if stored:
                session.unsettled.difference_update(packet_ids)
            else:
                session.forget_received(packet_ids)

        session = self.sessions.connected.get(key)
        if session is None:
            self.sessions.amend(key, self.restore, change)
        else:
            change(session)
            self.sessions.changed(session)

    def restore(self, key: str, document: bytes) -> Session:
        """The session of a stored document. Raises UnknownSession."""
        router = self.router
        return decode_session(key, document, router.source, router.sources, self.receipts)

    def handle(self, link: Link, event: Event) -> None:
        """Any other event. Raises MqttError."""
        if self.settings.client_requests_per_s and type(event) in _REQUESTS:
            self._spend_requests(link, _request_count(event))
        self._HANDLERS[type(event)](self, link, event)

    def _spend_requests(self, link: Link, count: int) -> None:
        limit = self.settings.client_requests_per_s
        if link.requests is None:
            link.requests = Rate(limit, self.deadlines.now)
        if not link.requests.spend(count, self.deadlines.now):
            message = f"more than {limit} requests a second for {BURST_S} seconds"
            raise ProtocolViolation(message, Reason.MESSAGE_RATE_TOO_HIGH, "client_requests_per_s")

    def _ping(self, link: Link, event: Pings) -> None:
        link.deliver(_PINGRESP * event.ping_count, event.ping_count)

    def _disconnect(self, link: Link, event: packets.Disconnect) -> None:
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
        self.gone(link, f"by the client ({Reason(event.reason).name})")
        link.close()

    _HANDLERS: ClassVar[dict[type, Callable[["Broker", Link, Any], None]]] = {
        Acknowledgements: acknowledging.acknowledged,
        Pings: _ping,
        packets.Disconnect: _disconnect,
        packets.Connect: auth.connect,
        packets.Subscribe: subscribe.subscribe,
        packets.Unsubscribe: subscribe.unsubscribe,
        packets.Auth: auth.authenticate,
    }

    def revoke_will(self, link: Link) -> None:
        """Whatever becomes of the client, nobody will hear of its will."""
        will, link.will = link.will, None
        if will is not None:
            self.wills.revoke(will)

    def judge_anew(self) -> None:
        """The guard knows other users and rules than before: who may not stay has to go, who stays may do other
        things."""
        for link in list(self.links):
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
        """A client id for a client that has none; nobody else's."""
        return f"auto-{secrets.token_hex(12)}"
