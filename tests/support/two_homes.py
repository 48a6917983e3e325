"""Two homes of a cluster that share a subscription: a log that home 1 leads, members at both, and between them the
messages of a connection that can be cut. The feeds, groups and deliveries are real, on a loop turned by hand."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from mqtt_front.delivery.delivery import Delivery
from mqtt_front.delivery.remote_members import RemoteMembers
from mqtt_front.feeds.feed import LogSource
from mqtt_front.feeds.group_store import Groups
from mqtt_front.feeds.remote_group import Branches
from mqtt_front.feeds.subscription import Subscription
from mqtt_front.runtime.clocks import PassingTime
from mqtt_front.sessions.session import Session
from tests.support.manual_loop import ManualLoop
from tests.support.mqtt_clients import FakeClient
from timestone.log import Log
from timestone.reading.batch import Batch
from timestone.writing.write_batch import WriteBatch
from timestone_access.throttled_log import ThrottledLog
from timestone_cluster.division import Division

FILTER = "$queue/g/t"
HOMES = 2
_LOG = logging.getLogger("test")


class Wire:
    """A connection from home 0 to home 1. Messages arrive in a later turn, or never."""

    def __init__(self, homes: "TwoHomes") -> None:
        self._homes, self.is_open = homes, True

    def send(self, data: bytes) -> None:
        """Answer, as home 1 does."""
        if self.is_open:
            self._homes.loop.call_soon(self._arrive, lambda: self._homes.answered(1, data))

    def tell(self, data: bytes) -> None:
        """Send to home 1."""
        if self.is_open:
            self._homes.loop.call_soon(
                self._arrive, lambda: self._homes.leader.heard(0, data, self._homes.wire or self)
            )

    def _arrive(self, call: Callable[[], None]) -> None:
        if self.is_open:
            call()


class Elsewhere:
    """What home 0 sees of home 1; see `timestone.fronts.Partitions`."""

    def __init__(self, homes: "TwoHomes", home: int) -> None:
        self._homes, self.home, self.count, self.lags = homes, home, HOMES, False
        division = Division(HOMES)
        self.of_topic, self.of_filter, self.of_client = (
            division.of_topic,
            division.of_filter,
            division.of_client,
        )

    def appendable(self, log: Log) -> object:
        raise NotImplementedError

    def documents(self, shard: int) -> object:
        raise NotImplementedError

    def connection(self, shard: int) -> object | None:
        return self._homes.wire if self.home == 0 else None

    def tell(self, shard: int, data: bytes) -> None:
        if self.home == 0 and self._homes.wire is not None:
            self._homes.wire.tell(data)

    def listen(self, answered: Callable[[int, bytes], None]) -> None:
        if self.home == 0:
            self._homes.answered = answered


class TwoHomes:
    """Both homes on one loop."""

    def __init__(self, log: Log, executor: ThreadPoolExecutor) -> None:
        """log: its partition is 1."""
        self.log, self.loop = log, ManualLoop()
        self.wire: Wire | None = Wire(self)
        self.answered: Callable[[int, bytes], None] = lambda shard, data: None
        self._saved: list[Callable[[], None]] = []
        self.delivery = Delivery(self.loop, executor, ThrottledLog(_LOG), self, PassingTime())
        self.groups = [self._new_groups(home) for home in range(HOMES)]
        self.leader = self._new_leader()
        self.members: dict[str, tuple[int, Session, FakeClient]] = {}
        self.published = 0

    def _new_groups(self, home: int) -> Groups:
        return Groups(branches=Branches(Elsewhere(self, home)))  # type: ignore[arg-type]

    def _new_leader(self) -> RemoteMembers:
        leader = RemoteMembers(
            self.loop,
            self.groups[1],
            {self.log.name: self.log},
            self._read,
            self._saved.append,
            ThrottledLog(_LOG),
        )
        leader.open()
        return leader

    def start(self) -> "TwoHomes":
        """Exchange messages from now on."""
        branches = self.groups[0].branches
        assert branches is not None
        branches.open(self.loop)
        self.loop.settle()
        return self

    @staticmethod
    def _read(work: Callable[[], Batch], then: Callable[[Batch | Exception], None]) -> None:
        raise AssertionError("all is in memory")

    def changed(self, session: Session) -> None:
        """Do not save."""

    def save(self, session: Session, then: object) -> None:
        raise AssertionError("nothing is at QoS 2")

    # Members.

    def join(
        self, name: str, home: int, room: int = 65_535, topic_filter: str = FILTER, qos: int = 1
    ) -> Session:
        """Connect a member with a new session."""
        session = Session(name)
        self.connect(session, home, room)
        source = LogSource.of(self.log, self.groups[home])
        session.subscribe(Subscription(topic_filter, qos), [source])
        self.delivery.start(session)
        self.loop.settle()
        return session

    def connect(self, session: Session, home: int, room: int = 65_535) -> None:
        """Connect a member again."""
        client = FakeClient(inflight_limit=room)
        session.client = client
        self.members[session.key] = home, session, client
        session.attach(self.delivery.wake)
        self.delivery.start(session)
        self.loop.settle()

    def leave(self, session: Session) -> None:
        """Disconnect a member. Its session stays."""
        session.client = None
        session.detach()
        self.loop.settle()

    def end(self, session: Session) -> None:
        """End the session of a member that is not connected."""
        self.groups[self.members[session.key][0]].session_ended(session.key)
        self.loop.settle()

    def client(self, session: Session) -> FakeClient:
        """Return the connection of a member."""
        return self.members[session.key][2]

    def taken(self, session: Session) -> list[int]:
        """Return what a member has received since the last call, and acknowledge it."""
        found = self.client(session).take()
        session.acknowledged([one.packet_id for one in found if one.qos])
        self.delivery.resume(session)
        self.loop.settle()
        return [int(one.payload) for one in found]

    # What happens.

    def publish(self, count: int, topic: str = "t") -> list[int]:
        """Append messages with the next numbers."""
        numbers = list(range(self.published, self.published + count))
        self.published += count
        payloads = [b"%d" % number for number in numbers]
        self.log.append_batch(WriteBatch(payloads, self.log.topic_id(topic), flags=2), ack="written")
        self.loop.settle()
        return numbers

    def cut(self) -> None:
        """End the connection, and lose what is under way."""
        if self.wire is not None:
            self.wire.is_open = False
            self.wire = None
        self.loop.settle()

    def tick(self) -> None:
        """Let some time pass, with a new connection if there is none."""
        if self.wire is None:
            self.wire = Wire(self)
        branches = self.groups[0].branches
        assert branches is not None
        branches.tick()
        self.leader.tick()
        self.loop.settle()

    def documents(self, home: int) -> dict[str, bytes]:
        """Return what the groups of a home have to save, and count it as saved."""
        groups = self.groups[home]
        groups.changed.update(groups)
        found = {key: document for key, document in groups.changes(0)[0].items() if document is not None}
        if home == 1:
            saved, self._saved[:] = self._saved[:], []
            for call in saved:
                call()
        self.loop.settle()
        return found

    def change_leader(self, documents: dict[str, bytes]) -> None:
        """Have another process lead home 1, with what this one has saved. Its members are gone."""
        self.cut()
        self.leader.close()
        self._saved.clear()
        for home, session, _ in list(self.members.values()):
            if home == 1:
                session.client = None
                session.detach()
                del self.members[session.key]
        self.groups[1].close()
        self.groups[1] = self._new_groups(1)
        self.groups[1].restore(documents, {self.log.key: self.log}.get, {}, _LOG)
        self.leader = self._new_leader()

    def change_home(self, documents: dict[str, bytes], sessions: list[Session]) -> None:
        """Have another process lead home 0, with what this one has saved. The clients of its members are gone.
        sessions: those that stay."""
        self.cut()
        for home, session, _ in list(self.members.values()):
            if home == 0:
                session.client = None
                del self.members[session.key]
        self.groups[0].close()
        self.groups[0] = self._new_groups(0)
        names = {session.key: False for session in sessions}
        self.groups[0].restore(documents, {self.log.key: self.log}.get, names, _LOG)
        self.wire = Wire(self)
        self.start()
