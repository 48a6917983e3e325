"""Two homes of a cluster whose members share a subscription at QoS 2, and clients of both, as a model of all that can
happen between: a log that home 1 leads, what each home has stored, connections that are cut, and homes that are lost
with all that they had not stored. Sessions, groups, deliveries and the handling of acknowledgements are real. Each home
has a loop of its own, which is turned by hand and ends with it."""

import itertools
import logging
import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from mqtt_front.codec.packets import PacketType, Publish, Pubrel
from mqtt_front.delivery.delivery import Delivery
from mqtt_front.delivery.remote_members import RemoteMembers
from mqtt_front.feeds.feed import LogSource
from mqtt_front.feeds.group_store import Groups
from mqtt_front.feeds.remote_group import Branches
from mqtt_front.feeds.shared_group import SharedGroup
from mqtt_front.feeds.subscription import Subscription
from mqtt_front.handlers import ack
from mqtt_front.protocol.events import Acknowledgements
from mqtt_front.runtime.clocks import PassingTime
from mqtt_front.sessions.qos2_receipts import Receipts
from mqtt_front.sessions.session import Session
from mqtt_front.sessions.session_document import NEVER_S, decode_session
from mqtt_front.sessions.session_store import Sessions
from tests.support.manual_loop import ManualLoop
from tests.support.mqtt_clients import FakeClient, parse
from tests.support.two_homes import HOMES
from timestone.log import Log
from timestone.reading.batch import Batch
from timestone.writing.write_batch import WriteBatch
from timestone_access.throttled_log import ThrottledLog

FILTER = "$queue/g/t"
_LOG = logging.getLogger("test")


class Stored:
    """Documents of a home, on all its replicas. Each transaction takes until `commit`."""

    def __init__(self) -> None:
        self._spaces: dict[str, dict[str, bytes]] = {}
        self._waiting: deque[tuple[Future[None], Callable[..., None], tuple[Any, ...]]] = deque()

    def items(self, space: str) -> dict[str, bytes]:
        return dict(self._spaces.get(space, {}))

    def put_many(self, space: str, items: dict[str, bytes | None]) -> None:
        for key, document in items.items():
            if document is None:
                self._spaces.setdefault(space, {}).pop(key, None)
            else:
                self._spaces.setdefault(space, {})[key] = document

    def submit(self, call: Callable[..., None], *arguments: Any) -> Future[None]:
        """As an executor with one thread."""
        outcome: Future[None] = Future()
        self._waiting.append((outcome, call, arguments))
        return outcome

    def commit(self) -> bool:
        """End the first transaction. Return False if there is none."""
        if not self._waiting:
            return False
        outcome, call, arguments = self._waiting.popleft()
        call(*arguments)
        outcome.set_result(None)
        return True

    def lose(self, committed_count: int) -> None:
        """Lose what waits. Some of it was committed, without an answer."""
        for _, call, arguments in itertools.islice(self._waiting, committed_count):
            call(*arguments)
        self._waiting.clear()


class Link(FakeClient):
    """Connection of a client."""

    client_id = "client"

    def __init__(self, level: int, room: int) -> None:
        super().__init__(level, inflight_limit=room)
        self.level = level
        self.session: Session | None = None
        self.is_welcome = False
        self.coming: deque[object] = deque()

    def deliver(self, data: bytes, count: int = 0) -> None:
        self.coming += parse(data, self.target.level)[0]


class Device:
    """Client that keeps its session, and the promise of QoS 2: an id that is not released is not a new message."""

    def __init__(self, name: str, home: int, qos: int, room: int) -> None:
        self.name, self.home, self.qos, self.room = name, home, qos, room
        self.link: Link | None = None
        self.received: list[int] = []
        self.has_session = False
        self._held: set[int] = set()

    @property
    def is_subscribed(self) -> bool:
        """Return whether it has the subscription, as far as its server knows."""
        session = self.link.session if self.link is not None else None
        return session is not None and FILTER in session.subscriptions

    def take(self, packet: object) -> tuple[PacketType, int] | None:
        """Take a packet, and return what it is answered with."""
        if isinstance(packet, Pubrel):
            self._held.discard(packet.packet_id)
            return PacketType.PUBCOMP, packet.packet_id
        assert isinstance(packet, Publish)
        if packet.qos < 2 or packet.packet_id not in self._held:
            self.received.append(int(packet.payload))
        if not packet.qos:
            return None
        if packet.qos == 2:
            self._held.add(packet.packet_id)
        return (PacketType.PUBREC if packet.qos == 2 else PacketType.PUBACK), packet.packet_id


class Server:
    """Leader of one home, until it is lost."""

    def __init__(self, model: "OnceHomes", number: int) -> None:
        self.model, self.number, self.loop = model, number, ManualLoop()
        stored, log, self.log = model.stored[number], ThrottledLog(_LOG), model.log
        self.groups = Groups(branches=Branches(Elsewhere(model, self)))  # type: ignore[arg-type]
        self.source = LogSource.of(model.log, self.groups)
        self.receipts = Receipts([model.log])
        self.sessions = Sessions(
            stored,
            self.loop,
            stored,  # type: ignore[arg-type]
            self.receipts,
            groups=self.groups,
            log=_LOG,
            time=PassingTime(),
        )
        self.throttled_log = log
        self.delivery = Delivery(self.loop, stored, log, self.sessions, PassingTime())  # type: ignore[arg-type]
        logs = {model.log.name: model.log} if number == 1 else {}
        self.members = RemoteMembers(
            self.loop, self.groups, logs, _no_disk, self.sessions.save_groups, ThrottledLog(_LOG)
        )
        self.answered: Callable[[int, bytes], None] = lambda shard, data: None

    def load(self) -> None:
        """Continue where an earlier leader was lost."""
        self.sessions.load()
        self.members.open()
        assert self.groups.branches is not None
        self.groups.branches.open(self.loop)

    def restore(self, key: str, document: bytes) -> Session:
        found = {self.log.key: self.source}
        return decode_session(key, document, found.get, lambda topic_filter: [self.source], self.receipts)

    def moved(self, session: Session, count: int) -> None:
        """Note room for deliveries, as `Broker.moved`."""
        if count:
            self.sessions.changed(session)
            self.delivery.resume(session)

    def connect(self, device: Device) -> None:
        """Admit a client, as `handlers.connect`."""
        link = device.link = Link(5 if device.home else 4, device.room)
        session = self.sessions.take(device.name, self.restore)
        assert session is not None or not device.has_session, "the session is lost"
        session = Session(device.name) if session is None else session
        session.expiry_s = NEVER_S
        self.sessions.connect(session)
        link.session, session.client = session, link

        def welcome() -> None:
            if session.client is link:
                link.is_welcome = True
                session.attach(self.delivery.wake)
                ack.release_again(link, session)  # type: ignore[arg-type]
                self.delivery.start(session)
                if not device.has_session:
                    self.subscribe(device)

        self.sessions.once_saved(device.name, welcome)

    def subscribe(self, device: Device) -> None:
        """Add the subscription, as `handlers.subscribe`."""
        link = device.link
        assert link is not None and link.session is not None
        session = link.session
        session.subscribe(Subscription(FILTER, device.qos), [self.source])

        def saved() -> None:
            device.has_session = True
            if session.client is link:
                self.delivery.start(session)

        self.sessions.save(session, saved)

    def unsubscribe(self, device: Device) -> None:
        """End the subscription, as `handlers.subscribe`."""
        assert device.link is not None and device.link.session is not None
        session = device.link.session
        session.unsubscribe(FILTER)
        session.feeds.drop_idle()
        self.delivery.start(session)
        self.sessions.save(session, lambda: None)

    def disconnect(self, device: Device) -> None:
        """End the connection of a client, as `Broker.gone`."""
        link, device.link = device.link, None
        assert link is not None and link.session is not None
        session, link.session = link.session, None
        session.client = None
        session.detach()
        self.sessions.disconnect(session)

    def tick(self) -> None:
        """Note that time has passed, as `Broker._tick` and `Broker.save`."""
        assert self.groups.branches is not None
        self.groups.branches.tick()
        self.members.tick()
        self.groups.expire(PassingTime(), 3600)
        self.sessions.save_changed()


def _no_disk(work: Callable[[], Batch], then: Callable[[Batch | Exception], None]) -> None:
    raise AssertionError("all is in memory")


class Wire:
    """Connection from home 0 to home 1."""

    def __init__(self) -> None:
        self.is_open = True
        self.there: deque[bytes] = deque()
        self.back: deque[bytes] = deque()

    def send(self, data: bytes) -> None:
        self.back.append(data)


class Elsewhere:
    """What a home sees of the other one; see `timestone.fronts.Partitions`."""

    count, lags = HOMES, False

    def __init__(self, model: "OnceHomes", server: Server) -> None:
        self._model, self._server, self.home = model, server, server.number

    def connection(self, shard: int) -> object | None:
        return self._model.wire if self.home == 0 else None

    def tell(self, shard: int, data: bytes) -> None:
        if self.home == 0 and self._model.wire is not None:
            self._model.wire.there.append(data)

    def listen(self, answered: Callable[[int, bytes], None]) -> None:
        self._server.answered = answered


class OnceHomes:
    """Both homes and their clients."""

    def __init__(self, log: Log, chance: random.Random, devices: list[Device]) -> None:
        """log: its partition is 1."""
        self.log, self.chance, self.devices = log, chance, devices
        self.stored = [Stored(), Stored()]
        self.wire: Wire | None = None
        self.published = 0
        self.servers = [self._led(number) for number in range(HOMES)]

    def _led(self, number: int) -> Server:
        server = Server(self, number)
        server.load()
        return server

    @property
    def group(self) -> SharedGroup:
        """Return the group at the home that leads the log."""
        group = self.servers[1].groups.find(self.log, FILTER)
        assert group is not None
        return group

    # What happens.

    def publish(self, count: int, qos: int = 2) -> None:
        """Append messages with the next numbers."""
        payloads = [b"%d" % number for number in range(self.published, self.published + count)]
        self.published += count
        self.log.append_batch(WriteBatch(payloads, self.log.topic_id("t"), flags=qos << 1), ack="written")

    def cut(self) -> None:
        """End the connection, and lose what is under way."""
        if self.wire is not None:
            self.wire.is_open, self.wire = False, None

    def join(self) -> None:
        """Connect the homes, if they are not."""
        if self.wire is None:
            self.wire = Wire()

    def arrive(self) -> None:
        """Let one message arrive, in each direction."""
        if (wire := self.wire) is not None:
            if wire.there:
                self.servers[1].members.heard(0, wire.there.popleft(), wire)
            if wire.back:
                self.servers[0].answered(1, wire.back.popleft())

    def lose(self, number: int, committed_count: int | None = None) -> None:
        """Have another node lead a home. committed_count: transactions that no one knows of, by default any."""
        self.cut()
        self.stored[number].lose(self.chance.randrange(2) if committed_count is None else committed_count)
        for device in self.devices:
            if device.home == number:
                device.link = None
        for group in self.servers[number].groups:
            group.close()
        self.servers[number] = self._led(number)

    def turn(self, number: int) -> None:
        """Turn the loop of a home once."""
        self.servers[number].loop.turn()

    def come_or_go(self, device: Device) -> None:
        """Connect a client, or end its connection, and lose what is under way to it."""
        server = self.servers[device.home]
        if device.link is None:
            server.connect(device)
        else:
            server.disconnect(device)

    def change(self, device: Device) -> None:
        """End the subscription of a client, or begin it again."""
        server = self.servers[device.home]
        if device.link is not None and device.link.is_welcome:
            (server.unsubscribe if device.is_subscribed else server.subscribe)(device)

    def step(self, device: Device) -> None:
        """Have a client take its next packet, and answer it."""
        link, server = device.link, self.servers[device.home]
        if link is None or not link.coming:
            return
        answer = device.take(link.coming.popleft())
        if answer is not None:
            kind, packet_id = answer
            event = Acknowledgements(kind, [packet_id])
            ack.acknowledged(server, link, event)  # type: ignore[arg-type]

    def settle(self) -> None:
        """Have all that is left happen, without a further loss."""
        self.join()
        for device in self.devices:
            if device.link is None:
                self.come_or_go(device)
        for number in range(150):
            for device in self.devices:
                if not device.is_subscribed:
                    self.change(device)
            for server, stored in zip(self.servers, self.stored, strict=True):
                if number % 10 == 0:
                    server.tick()
                server.loop.settle()
                while stored.commit():
                    server.loop.settle()
            for device in self.devices:
                for _ in range(len(device.link.coming) if device.link is not None else 0):
                    self.step(device)
            while self.wire is not None and (self.wire.there or self.wire.back):
                self.arrive()
