"""Known mistakes of replication, each as a switch: a subclass that makes it, and the faults that it takes to show.

The tests require that the search or the walks find every one of them; docs/cluster.md has the table."""

from dataclasses import dataclass, replace

import msgspec

from tests.cluster.small_model import Bounds, Model, Node
from timestone_cluster.actions import Cut, Propose, Send, Show
from timestone_cluster.follower import Follower
from timestone_cluster.frames import Diverged, Follow, Frame, Held, Records, Reset, Started
from timestone_cluster.leader import Leader
from timestone_cluster.replica import Replica
from timestone_cluster.replica_log import ReplicaLog
from timestone_cluster.shard_record import ShardRecord, node_of


@dataclass(frozen=True)
class Mutant:
    """A mistake."""

    name: str
    known_from: str
    model: type[Model]
    bounds: Bounds
    script: tuple[str, ...] = ()
    """Where the search begins, after `Model.begun`: a scene in which the mistake is near."""


def _replica(
    leader: type[Leader] = Leader, follower: type[Follower] = Follower, replica: type[Replica] = Replica
) -> type[Model]:
    """Return a model of replicas with these roles."""

    class Mutated(replica):  # type: ignore[misc, valid-type]
        def _leader(self, record: ShardRecord) -> Leader:
            return leader(self.member, record, self.min_isr, self.logs, self.actions)

        def _follower(self, record: ShardRecord) -> Follower:
            assert record.leader is not None
            return follower(record.generation, record.leader, self.logs, self.actions)

    class MutatedModel(Model):
        replica_type = Mutated

    return MutatedModel


class CutsToCommitted(Replica):
    def follow_again(self) -> None:
        if self.role is None and self.record is not None and self.record.leader not in (None, self.member):
            for name, log in self.logs.items():
                if log.committed < log.end:
                    names = log.end_of(log.generation_at(log.committed - 1)).names if log.committed else 0
                    log.cut(log.committed, names)
                    self.actions.append(Cut(name, log.committed, names))
        super().follow_again()


class AsksWithoutComparing(Follower):
    """Asks as if it had no records that could differ."""

    def question(self, name: str) -> Follow:
        return msgspec.structs.replace(super().question(name), last_generation=0)


class TrustsTheSameLeader(Replica):
    def record_seen(self, record: ShardRecord, revision: int) -> None:
        role = self.role
        if (
            isinstance(role, Follower)
            and role.leader == record.leader
            and role.generation < record.generation
            and self.revision < revision
        ):
            self.record, self.revision = record, revision
            self.role = AsksWithoutComparing(record.generation, role.leader, self.logs, self.actions)
            self.role.ask()
        else:
            super().record_seen(record, revision)


class StartsWithoutComparing(Leader):
    def follow(self, member: str, frame: Follow) -> None:
        super().follow(member, frame)
        progress, log = self.followers[member][frame.log], self.logs[frame.log]
        if progress.sent is None and frame.end <= log.end:
            progress.sent, progress.names = frame.end, frame.names
            self.actions[-1] = Send(member, Started(self.generation, frame))
            self._ship(member, frame.log)


class HoldsBeforeFlush(Follower):
    def records(self, frame: Records) -> None:
        super().records(frame)
        if frame.log in self.started:
            self.actions.append(Send(self.leader, Held(self.generation, frame.log, self.logs[frame.log].end)))


class CountsOwnUnflushed(Leader):
    def held_by(self, member: str, name: str) -> int:
        return self.logs[name].end if member == self.member else super().held_by(member, name)

    def appended(self, name: str) -> None:
        super().appended(name)
        self.advance()


class AnswersOldLeader(Replica):
    def received(self, member: str, frame: Frame) -> None:
        super().received(member, frame)
        if isinstance(frame, Records) and frame.generation < self.generation:
            durable = min(self.logs[frame.log].durable, frame.end)
            self.actions.append(Send(member, Held(frame.generation, frame.log, durable)))


class CountsOldGenerations(Replica):
    def received(self, member: str, frame: Frame) -> None:
        if isinstance(frame, Held) and isinstance(self.role, Leader) and frame.generation < self.generation:
            self.role.held(member, frame)
        else:
            super().received(member, frame)


class TakesLateAnswers(Follower):
    def answered(self, frame: Started | Diverged | Reset) -> None:
        if frame.question.log not in self.started:
            super().answered(msgspec.structs.replace(frame, question=self.question(frame.question.log)))


class ShrinksToOne(Replica):
    def dismiss(self, member: str, why: str = "") -> None:
        self.min_isr, kept = 1, self.min_isr
        super().dismiss(member, why)
        self.min_isr = kept


class CountsProposalsAtOnce(Leader):
    def proposed(self, record: ShardRecord) -> None:
        self.isr = record.isr


class TakesLeaseAsFence(Replica):
    def dismiss(self, member: str, why: str = "") -> None:
        super().dismiss(member, why)
        if isinstance(self.role, Leader) and member != self.member:
            self.role.isr -= {member}
            self.role.proposals.clear()
            self.role.advance()


class ServesAtOnce(Leader):
    def advance(self, only: str | None = None) -> None:
        self.is_serving = True
        super().advance(only)


class CommitsWhatItHas(Leader):
    def advance(self, only: str | None = None) -> None:
        if not self.is_serving and not self.followers:
            for name, log in self.logs.items():
                log.committed = log.end
                self.actions.append(Show(name, log.end))
        super().advance(only)


class CountsObservers(Leader):
    """Takes what an observer has for what a member has that has said nothing yet."""

    def held_by(self, member: str, name: str) -> int:
        held = super().held_by(member, name)
        if held or member == self.member:
            return held
        return max((self.followers[one][name].held for one in self.observers), default=0)

    def held(self, member: str, frame: Held) -> None:
        nodes, self.nodes = self.nodes, (*self.nodes, node_of(member))
        super().held(member, frame)
        self.nodes = nodes
        self.advance()


class PromisesAsObserver(Follower):
    @property
    def observes(self) -> bool:
        return False

    @observes.setter
    def observes(self, value: bool) -> None: ...


class AdmitsWhoIsBehind(Leader):
    def may_admit(self, member: str) -> bool:
        return member in self.followers


class GoesOnAfterRestart(Replica):
    def record_seen(self, record: ShardRecord, revision: int) -> None:
        if record.leader == self.member:
            self.run = record.run
        super().record_seen(record, revision)


class TakesLateRecords(Replica):
    def record_seen(self, record: ShardRecord, revision: int) -> None:
        if revision < self.revision:
            self.revision = 0
        super().record_seen(record, revision)


class StandsOutOfSync(Replica):
    @property
    def may_stand(self) -> bool:
        return self.record is not None and not isinstance(self.role, Leader)

    def stand(self, why: str = "") -> None:
        if self.record is not None and self.member not in self.record.isr:
            led = self.record.elected(next(iter(self.record.isr)), self.run, self.min_isr)
            assert led is not None
            record = ShardRecord(led.generation, self.member, self.run, led.isr | {self.member}, led.replicas)
            self._leave()
            absent = None if self.record.leader is None else (self.record.leader, self.record.run)
            self.actions.append(Propose(self.revision, record, (self.member, self.run), absent))
        else:
            super().stand(why)


class LeadsDamaged(Replica):
    @property
    def may_stand(self) -> bool:
        return (
            self.record is not None and not isinstance(self.role, Leader) and self.member in self.record.isr
        )


class DropsTombstonesEarly(Leader):
    def advance(self, only: str | None = None) -> None:
        super().advance(only)
        for log in self.logs.values():
            log.stable = log.committed


class KeepsNames(ReplicaLog):
    __slots__ = ()

    def cut(self, offset: int, names: int) -> None:
        ReplicaLog.cut(self, offset, self.names)


class KeepsNamesModel(Model):
    log_type = KeepsNames


class SameIdentityAfterBoot(Model):
    def member(self, node: Node) -> str:
        return node.name


class KnowsSendersByMachine(Model):
    def sender(self, member: str, present: dict[str, str]) -> str:
        return present.get(node_of(member), member)


class SameIdentityWithNewDisk(Model):
    def new_identity(self, name: str) -> str:
        return name


_COMMITTED = ("a appends", "a flushes", "b receives a Records", "b flushes", "a receives b Held")
"""One record is on a and b."""
_EVERYWHERE = (*_COMMITTED, "c receives a Records", "c flushes", "a receives c Held")
_WITHOUT_C = ("a dismisses c", "etcd agrees", "a sees")
_A_DIES = ("a is killed", "a lease ends")
_B_LEADS = ("b stands", "etcd agrees", "b sees")
_B_SERVES = (*_B_LEADS, "c sees", "b receives c Follow", "c receives b Started")
_C_HAS_IT = (
    "c sees",
    "b receives c Follow",
    "c receives b Started",
    "c receives b Records",
    "c flushes",
    "b receives c Held",
)

_QUIET = Bounds(records=1, generations=1, kills=0, changes=0)
_KILL = replace(_QUIET, kills=1)
_POWER = replace(_QUIET, power_cuts=1)
_CHANGES = replace(_QUIET, changes=2)
_NEXT = Bounds(records=2, generations=2, kills=1, changes=0)

MUTANTS = [
    Mutant("cuts to the committed offset", "KIP-101", _replica(replica=CutsToCommitted), _KILL),
    Mutant(
        "trusts the same leader in a new generation", "KAFKA-7164", _replica(replica=TrustsTheSameLeader),
        Bounds(records=2, generations=3, kills=1, changes=1),
        ("a appends", *_A_DIES, *_B_SERVES, "b appends", "a starts", "b resigns", "etcd agrees", "b sees", *_B_LEADS,
         "b flushes", "a sees"),
    ),
    Mutant(
        "starts without comparing", "Raft §5.3", _replica(leader=StartsWithoutComparing), _NEXT,
        ("a appends", *_A_DIES, *_B_SERVES, "b appends", "b flushes", "a starts", "b receives a Follow"),
    ),
    Mutant("acknowledges before the flush", "PacificA §2.1", _replica(follower=HoldsBeforeFlush), _POWER),
    Mutant("leader counts what it has not flushed", "PacificA §2.1", _replica(leader=CountsOwnUnflushed), _POWER),
    Mutant(
        "acknowledges to an old leader", "PacificA §2.3", _replica(replica=AnswersOldLeader),
        replace(_NEXT, kills=0, ended_leases=1),
        ("a appends", "a flushes", "a lease ends", *_B_SERVES, "b appends", "b flushes"),
    ),
    Mutant(
        "counts Held of an old generation", "Raft §5.1", _replica(replica=CountsOldGenerations),
        Bounds(records=2, generations=3, kills=2, changes=1),
        ("a appends", "b receives a Records", "b flushes", *_A_DIES, "c stands", "etcd agrees", "c sees", "b sees",
         "c receives b Follow", "b receives c Reset", "a starts", "c receives a Follow", "a receives c Reset",
         "c receives a Follow", "c admits a", "etcd agrees", "c is killed", "c lease ends", "a sees", "a stands",
         "etcd agrees", "a sees", "b sees", "a receives b Follow", "a receives b Follow", "b receives a Started",
         "a appends", "a flushes"),
    ),
    Mutant(
        "takes an answer to an earlier question", "found by the walks", _replica(follower=TakesLateAnswers),
        replace(_NEXT, records=3),
        ("a appends", "b receives a Records", *_A_DIES, "c stands", "etcd agrees", "c sees", "b sees",
         "c receives b Follow", "b receives c Reset", "c receives b Follow", "b receives c Started",
         "c appends", "c flushes", "b receives c Records", "b flushes", "c receives b Held", "c appends"),
    ),
    Mutant(
        "counts an observer", "own", _replica(leader=CountsObservers, follower=PromisesAsObserver),
        replace(_QUIET, lost_disks=1), ("c loses its disk", "c' starts"),
    ),
    Mutant("shrinks the in-sync set to one", "KIP-966", _replica(replica=ShrinksToOne), _CHANGES),
    Mutant("counts a new in-sync set before etcd has", "KIP-497", _replica(leader=CountsProposalsAtOnce), _CHANGES),
    Mutant("takes an ended lease as a fence", "PacificA §2.3", _replica(replica=TakesLeaseAsFence), _CHANGES),
    Mutant(
        "serves before its beginning is committed", "Raft §8", _replica(leader=ServesAtOnce), _NEXT, _EVERYWHERE,
    ),
    Mutant("takes all it has as committed", "Raft §5.4.2", _replica(leader=CommitsWhatItHas), _NEXT, ("a appends",)),
    Mutant(
        "admits a follower that is behind", "PacificA §2.4", _replica(leader=AdmitsWhoIsBehind), _CHANGES,
        (*_WITHOUT_C, *_COMMITTED),
    ),
    Mutant(
        "leads on after a restart", "Raft §5.1", _replica(replica=GoesOnAfterRestart), replace(_POWER, records=2),
        ("a appends", "b receives a Records", "b flushes", "a loses power", "a starts",
         "a receives b Follow", "a receives c Follow", "a appends", "a flushes"),
    ),
    Mutant(
        "resumes a stale watch", "etcd", _replica(replica=TakesLateRecords),
        replace(_NEXT, kills=0, ended_leases=1, has_stale_watch=True),
        ("a lease ends", *_B_SERVES, "b appends"),
    ),
    Mutant(
        "stands out of sync", "KIP-966", _replica(replica=StandsOutOfSync), replace(_NEXT, changes=1),
        (*_WITHOUT_C, *_COMMITTED),
    ),
    Mutant(
        "leads damaged", "Raft §5.4.1", _replica(replica=LeadsDamaged),
        Bounds(records=1, generations=2, kills=2, damages=1, changes=0),
        (*_EVERYWHERE, "c is killed", "c is damaged", "c starts", *_A_DIES),
    ),
    Mutant(
        "drops tombstones early", "KAFKA-4545", _replica(leader=DropsTombstonesEarly),
        replace(_KILL, records=2, changes=1, has_compaction=True),
        (*_WITHOUT_C, "a appends", "c receives a Records", "b receives a Records", "a appends", "b receives a Records",
         "a flushes", "b flushes", "a receives b Held", "a compacts", "c is killed", "c starts"),
    ),
    Mutant(
        "does not cut topic names", "own", KeepsNamesModel, replace(_NEXT, records=3),
        ("a appends", "b receives a Records", "b flushes", "a appends", *_A_DIES, *_B_LEADS, *_C_HAS_IT, "b appends",
         "b flushes", "c receives b Records", "c flushes", "b receives c Held", "a starts", "b receives a Follow"),
    ),
    Mutant(
        "keeps its identity after a reboot", "KIP-903", SameIdentityAfterBoot, replace(_POWER, is_written_level=True),
    ),
    Mutant(
        "takes what another boot has sent", "own", KnowsSendersByMachine,
        replace(_POWER, changes=1, is_written_level=True),
        ("a appends", "b@0 receives a@0 Records", "a@0 receives b@0 Held", "c@0 receives a@0 Records",
         "a@0 receives c@0 Held", "b loses power", "b starts"),
    ),
    Mutant("keeps its identity with an empty disk", "KIP-903", SameIdentityWithNewDisk, replace(_QUIET, lost_disks=1)),
]  # fmt: skip
