"""Replicas of one log and their driver, for tests of single rules."""

from typing import TypeVar

from timestone_cluster.actions import Action, Send
from timestone_cluster.frames import Follow, Frame, Held
from timestone_cluster.replica import Replica
from timestone_cluster.replica_log import ReplicaLog
from timestone_cluster.shard_record import ShardRecord

T = TypeVar("T")
LOG = "telemetry-0"
LED = ShardRecord(1, "a", 1, frozenset({"a", "b", "c"}), ("a", "b", "c"))
"""What etcd has when `a` leads."""


def log_of(*ends: tuple[int, int], committed: int = 0) -> ReplicaLog:
    """Return a durable log with these generations up to these ends."""
    log = ReplicaLog()
    for generation, end in ends:
        log.extend(generation, end, 0)
    log.durable, log.committed = log.end, committed
    return log


def replica(member: str, log: ReplicaLog | None = None, record: ShardRecord | None = LED) -> Replica:
    """Return a replica that has seen a record of etcd and done what follows from it."""
    made = Replica(member, {"a": 1, "b": 2, "c": 3}[member], 2, {LOG: log or ReplicaLog()})
    if record is not None:
        made.record_seen(record, 5)
        made.take_actions()
    return made


def leader(log: ReplicaLog | None = None, *, followers: str = "bc") -> Replica:
    """Return the leader of generation 1 or of the one after its log's last, with followers that have all it has."""
    log = log or ReplicaLog()
    record = ShardRecord(log.last_generation + 1, "a", 1, LED.isr, LED.replicas)
    made = replica("a", log, record)
    for member in followers:
        made.received(member, Follow(record.generation, LOG, log.end, log.last_generation, log.names))
        made.received(member, Held(record.generation, LOG, log.end))
    made.take_actions()
    return made


def sent(actions: list[Action], member: str) -> list[Frame]:
    """Return the frames to a member."""
    return [action.frame for action in actions if isinstance(action, Send) and action.member == member]


def of_type(actions: list[Action], kind: type[T]) -> list[T]:
    """Return the actions of a type."""
    return [action for action in actions if isinstance(action, kind)]
