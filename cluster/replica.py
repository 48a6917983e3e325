"""One replica of a shard: a state machine without I/O, clock or thread. Events are method calls; `take_actions` returns
what the driver has to do, in this order.

The shape is PacificA's: the leader ships its log to all replicas, and commits what every in-sync one has; who leads and
who is in sync is a value in etcd that one transaction changes. Divergence is settled as in Kafka (KIP-101, KIP-279), a
leader's term as in Raft (§5.1). `deadlines` says *when* to stand, dismiss, admit or resign; here is only what each of
these may do. They are safe at any time: no rule below looks at a clock.

| event | reported when |
|---|---|
| `record_seen`, `refused` | etcd's record of the shard was read, or etcd refused a proposal |
| `received`, `linked` | a frame came from a member, or a new link to it is up |
| `appended`, `durable`, `compacted` | records were written by the leader for its clients, were flushed, or replaced |
| `damaged`, `repaired`, `begins`, `log_added`, `log_removed` | a log's state changed otherwise |
| `stand`, `admit`, `dismiss`, `hand_over`, `resign`, `registered` | it is time to propose a change |
"""

from collections.abc import Mapping

from .actions import Action, Alarm, Propose, Refresh, Send, StepDown
from .follower import Follower
from .frames import Beat, Committed, Diverged, Fenced, Follow, Frame, Held, Records, Reset, Started
from .leader import Leader
from .replica_log import ReplicaLog
from .shard_record import OLDER_ETCD, ShardRecord, node_of


class Replica:
    """State of one replica of one shard, in one life of a process. A process that starts again makes a new one, from
    what its disk has."""

    def __init__(self, member: str, run: int, min_isr: int, logs: Mapping[str, ReplicaLog]) -> None:
        self.member = member
        self.run = run
        """Create revision of this node's key in `nodes/`."""
        self.min_isr = min_isr
        self.logs = dict(logs)
        self.record: ShardRecord | None = None
        self.revision = 0
        self.role: Leader | Follower | None = None
        self.ended = 0
        """The newest generation that this replica has led and leads no more."""
        self.actions: list[Action] = []

    def take_actions(self) -> list[Action]:
        """Return what is to be done since the last call, in this order."""
        taken = self.actions[:]
        self.actions.clear()  # the roles hold the same list
        return taken

    @property
    def generation(self) -> int:
        """Return the newest generation that is known."""
        return self.record.generation if self.record else 0

    @property
    def observes(self) -> bool:
        """Return whether this node has no place in the shard: it follows for readers of its own."""
        return self.record is not None and node_of(self.member) not in self.record.nodes

    @property
    def is_serving(self) -> bool:
        """Return whether appends and reads are taken: as a leader that has committed all it began with."""
        return isinstance(self.role, Leader) and self.role.is_serving

    # etcd.

    def record_seen(self, record: ShardRecord, revision: int) -> None:
        """Take the record of the shard as etcd has it. An older one than the last is late, and means nothing."""
        if revision <= self.revision:
            return
        if record.generation < max((log.last_generation for log in self.logs.values()), default=0):
            self.actions.append(Alarm(f"{OLDER_ETCD}: it is at generation {record.generation}"))
            return
        self.record, self.revision = record, revision
        role = self.role
        if isinstance(role, Leader) and role.generation == record.generation and record.leader == self.member:
            role.settled(record)
        elif record.leader == self.member:
            self._leave()
            if record.run == self.run and record.generation > self.ended:
                self.role = self._leader(record)
        elif record.leader is None:
            self._leave()
        elif isinstance(role, Follower) and role.generation == record.generation:
            role.observes = self.observes
        else:
            self._leave()
            self.follow_again()

    def refused(self, proposal: Propose) -> None:
        """Take the answer of etcd that a proposal did not take place, though the revision is as it was."""
        if proposal.revision != self.revision:
            return
        if isinstance(self.role, Leader):
            self.role.refused(proposal.record)
        else:
            self.follow_again()

    def registered(self, run: int) -> None:
        """Take the run under which this node is registered from now on. A leader has it noted, and leads on."""
        self.run = run
        self.renew()

    def renew(self) -> None:
        """Have etcd note the run of this leader, unless it has."""
        if isinstance(self.role, Leader) and self.record is not None:
            self._propose(self.record.renewed(self.run), present=(self.member, self.run))

    # Other replicas.

    def received(self, member: str, frame: Frame) -> None:
        """Handle a frame of a member. One of another generation is answered, if at all, by saying so."""
        if frame.generation > self.generation:
            self._leave_if_leading()
            self.actions.append(Refresh())
        elif frame.generation < self.generation:
            if isinstance(frame, Beat | Follow | Records | Committed):
                self.actions.append(Send(member, Fenced(self.generation)))
        elif isinstance(self.role, Leader):
            self._received_by_leader(self.role, member, frame)
        elif isinstance(self.role, Follower) and member == self.role.leader:
            self._received_by_follower(self.role, frame)

    def _received_by_leader(self, role: Leader, member: str, frame: Frame) -> None:
        match frame:
            case Follow():
                role.follow(member, frame)
            case Held() if frame.log in self.logs:
                role.held(member, frame)

    def _received_by_follower(self, role: Follower, frame: Frame) -> None:
        match frame:
            case Started() | Diverged() | Reset() if frame.question.log in self.logs:
                role.answered(frame)
            case Records() if frame.log in self.logs:
                role.records(frame)
            case Committed() if frame.log in self.logs:
                role.commit(frame)

    def linked(self, member: str) -> None:
        """Ask a leader again on a new link, of which only the node may be known: what was on its way is lost."""
        if isinstance(self.role, Follower) and node_of(self.role.leader) == node_of(member):
            self.role.ask()

    def beat(self) -> None:
        """Send a heartbeat; called often, so that what was lost on the way is said again."""
        if self.role is not None:
            self.role.beat()

    # The own disk.

    def appended(self, name: str, end: int, names: int) -> None:
        """Note what the leader has written for its clients. Only while `is_serving`."""
        if not isinstance(self.role, Leader) or not self.role.is_serving:
            raise ValueError(f"invalid append to log {name}: this replica does not serve")
        self.logs[name].extend(self.role.generation, end, names)
        self.role.appended(name)

    def durable(self, name: str, offset: int) -> None:
        """Note below which offset records are as durable as the acknowledgement level asks."""
        log = self.logs[name]
        log.durable = max(log.durable, min(offset, log.end))
        if isinstance(self.role, Leader):
            self.role.advance(name)
        elif isinstance(self.role, Follower):
            self.role.hold(name)

    def compacted(self, name: str, clean: int) -> None:
        """Note that compaction has left no record below an offset with an older one of its topic, durably."""
        log = self.logs[name]
        log.clean = max(log.clean, clean)
        if isinstance(self.role, Leader):
            self.role.advance(name)

    def damaged(self, name: str) -> None:
        """Note a damaged record. A leader resigns: it must neither skip it nor make others cut theirs."""
        self.logs[name].damaged = True
        self.resign(f"resigns: {name} has a damaged record")

    def repaired(self, name: str) -> None:
        """Note that the records of another replica are in the place of the damaged ones."""
        self.logs[name].damaged = False
        if isinstance(self.role, Follower):
            self.role.hold(name)

    def begins(self, name: str, start: int) -> None:
        """Note that records at the beginning of a log were deleted, all of which were shown."""
        if start > self.logs[name].start:
            self.logs[name].begin(start)

    def log_added(self, name: str, log: ReplicaLog | None = None) -> None:
        """Begin to replicate another log of the shard. log: what is here of it, if it is not empty."""
        self.logs.setdefault(name, log or ReplicaLog())
        if isinstance(self.role, Follower):
            self.role.ask_for(name)

    def log_removed(self, name: str) -> None:
        """Replicate a log no more: the cluster has deleted it. One that is made again has another name here, so that
        what was said of this one counts for nothing there."""
        if self.logs.pop(name, None) is not None and self.role is not None:
            self.role.log_removed(name)

    # Proposals. Each is for the revision last seen, so at most one of them takes place. why: as `Propose` has it.

    def stand(self, why: str = "") -> None:
        """Stand for election: stop to follow, and propose to lead. etcd accepts it only if the leader of the record is
        not registered any more; what this replica has acknowledged is in its log, and leads with it."""
        if self.record is None or not self.may_stand:
            return
        record = self.record
        absent = None if record.leader in (None, self.member) else (record.leader, record.run)
        self._leave()
        self._propose(
            record.elected(self.member, self.run, self.min_isr),
            present=(self.member, self.run),
            absent=absent,
            why=why,
        )

    @property
    def may_stand(self) -> bool:
        """Return whether this replica may be elected: in sync, undamaged, and not the leader."""
        if self.record is None or isinstance(self.role, Leader):
            return False
        return self.record.may_elect(self.member) and not any(log.damaged for log in self.logs.values())

    def follow_again(self) -> None:
        """Follow the leader of the record, at the start of a generation or instead of standing."""
        record = self.record
        if record is not None and record.leader not in (None, self.member) and self.role is None:
            self.role = self._follower(record)
            self.role.observes, self.role.unclean = self.observes, record.unclean
            self.role.ask()

    def admit(self, member: str, run: int, why: str = "") -> None:
        """Propose that a follower that has caught up is in sync, if it is still registered under this run (KIP-903)."""
        if self.record is not None and isinstance(self.role, Leader) and self.role.may_admit(member):
            self._propose(self.record.admitted(member), present=(member, run), why=why)

    def dismiss(self, member: str, why: str = "") -> None:
        """Propose that a member that is late or gone is not in sync. It is counted until etcd has agreed."""
        if self.record is not None and isinstance(self.role, Leader):
            self._propose(self.record.dismissed(member, self.min_isr), why=why)

    def hand_over(self, member: str, run: int, why: str = "") -> None:
        """Propose a caught-up member as the leader, and take no more appends."""
        role = self.role
        if self.record is not None and isinstance(role, Leader) and role.may_hand_over(member):
            self._propose(self.record.handed_over(member, run), present=(member, run), why=why)

    def resign(self, why: str = "") -> None:
        """Stop to lead, and propose that none does. Repeated until etcd has agreed."""
        if self.record is not None and self.record.leader == self.member:
            self._propose(self.record.resigned(), why=why)
            self._leave()

    def _propose(
        self,
        record: ShardRecord | None,
        *,
        present: tuple[str, int] | None = None,
        absent: tuple[str, int] | None = None,
        why: str = "",
    ) -> None:
        if record is None:
            return
        if isinstance(self.role, Leader):
            self.role.proposed(record)
        present, absent = (one and (node_of(one[0]), one[1]) for one in (present, absent))
        self.actions.append(Propose(self.revision, record, present, absent, why))

    # Roles.

    def _leader(self, record: ShardRecord) -> Leader:
        return Leader(self.member, record, self.min_isr, self.logs, self.actions)

    def _follower(self, record: ShardRecord) -> Follower:
        assert record.leader is not None
        return Follower(record.generation, record.leader, self.logs, self.actions)

    def _leave(self) -> None:
        """Give up the role. A generation that was led is never led again: one value an offset and generation."""
        self._leave_if_leading()
        self.role = None

    def _leave_if_leading(self) -> None:
        if isinstance(self.role, Leader):
            self.ended = self.role.generation
            self.actions.append(StepDown(self.role.generation))
            self.role = None
