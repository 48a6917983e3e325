"""A whole cluster in virtual time: the protocol with its deadlines, the real engine, and a disk that forgets.

Each node has a store of the engine in its own folder, whose operations are recorded: a power cut leaves one of the
images that a disk with honest flushes may have then. Links are like TCP: frames arrive in order, and a cut loses what
is on its way. One seed draws everything, so a seed repeats a run.
"""

import heapq
import itertools
import random
import shutil
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from tests.cluster.engine_replica_log import SHIP_BYTES, EngineReplicaLog
from tests.support.power_loss import Disk, Loss
from tests.support.recording_files import RecordingFiles
from tests.support.step_clock import START_US, StepClock
from tests.support.workload import crash_config
from timestone.config import Ack
from timestone.replication.replicated_log import ReplicatedLog
from timestone.store import Store
from timestone_cluster.actions import (
    Alarm,
    Append,
    Clear,
    Cut,
    Expire,
    Propose,
    Refresh,
    Send,
    Serve,
    Ship,
    Show,
    StepDown,
)
from timestone_cluster.deadlines import TICK_S, Deadlines
from timestone_cluster.etcd.keys import WRITTEN_LEVEL, ClusterValue, replica_id, replica_name
from timestone_cluster.frames import Frame, Records
from timestone_cluster.leader import Leader
from timestone_cluster.node.held_shards import make_replica_folder
from timestone_cluster.recovery import Report, _best, _given_up
from timestone_cluster.replica import Replica
from timestone_cluster.shard.shipping import append
from timestone_cluster.shard_record import ShardRecord, Unclean, member_of, node_of
from timestone_cluster.transport.wire import LogState, StoredData

HOUR_US = 3600 * 1_000_000
LEASE_S = 3.0
KEEP_ALIVE_S = 1.0
CALM_S = 10.0
"""After the last fault every shard commits within this time."""
FAULTS = (
    "kill",
    "power",
    "pause",
    "cut",
    "one way",
    "alone",
    "no etcd",
    "etcd down",
    "slow disk",
    "lease",
    "replace",
)


class Broken(AssertionError):
    """A promise was broken."""


@dataclass
class Shard:
    """What must be true of a shard, and what etcd has of it."""

    name: str
    record: ShardRecord
    revision: int = 1
    logs: list[list[tuple[str, bytes] | None]] = field(default_factory=lambda: [[]])
    """What was shown, by offset, of each log that there was under the name: the last one is there, the others are
    deleted. None for what was given up, and for offsets that no record gets."""
    gaps: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Offsets that no record gets, by how many logs were deleted before."""

    @property
    def shown(self) -> list[tuple[str, bytes] | None]:
        """Return what was shown of the log that is there."""
        return self.logs[-1]

    @property
    def deletions(self) -> int:
        """Return how many logs were deleted."""
        return len(self.logs) - 1


@dataclass
class SimulatedNode:
    """One machine: folder, store, replicas, and what is wrong with it at present."""

    name: str
    root: Path
    clock: StepClock
    boot: int = 0
    life: int = 0
    """Rises when the process starts or dies: events of an earlier one do not happen."""
    run: int = 0
    paused_until: float = 0.0
    flush_s: float = 0.002
    store: Store | None = None
    files: RecordingFiles | None = None
    logs: dict[int, EngineReplicaLog] = field(default_factory=dict)
    replicas: dict[int, Replica] = field(default_factory=dict)
    deadlines: dict[int, Deadlines] = field(default_factory=dict)
    flushing: set[int] = field(default_factory=set)
    deleted: dict[int, int] = field(default_factory=dict)
    """How often a replica was deleted."""
    made: dict[int, int] = field(default_factory=dict)
    """How many logs were deleted before the one that it has of a shard, or had last."""
    observed: set[int] = field(default_factory=set)
    """Shards whose log is one of an observer, as the disk has it."""
    flushed: dict[int, tuple[int, int]] = field(default_factory=dict)
    """How many logs were deleted before those of shards, and their ends, that were on the disk when the power was
    lost."""


class Simulation:
    """A run. `run` raises Broken, or returns what happened."""

    replica_type: type[Replica] = Replica
    has_retention = True
    has_compaction = False
    """Whether the logs are compacted, and have records that delete others; without retention, then."""
    has_deletions = False
    """Whether logs are deleted, and others made under their names."""
    is_written_level = False
    faults: tuple[str, ...] = FAULTS
    has_observers = False
    """Whether nodes follow the shards in which they have no place."""
    sizes: tuple[int, ...] = 3, 3, 4, 5
    """Numbers of nodes to draw from."""

    def __init__(self, seed: str, folder: Path) -> None:
        self.rng = rng = random.Random(seed)
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)  # else it would be a part of what the first node records
        self.now_s = 0.0
        self.counts = dict.fromkeys(
            (
                "elections",
                "cuts",
                "starts",
                "records",
                "faults",
                "replaced",
                "expired",
                "compacted",
                "deleted",
                "observed",
                "recovered",
                "given up",
                "logs deleted",
            ),
            0,
        )
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._runs = itertools.count(1)
        names = "abcde"[: rng.choice(self.sizes)]
        self.shards = {}
        for number in range(rng.randint(1, 4)):
            replicas = tuple(rng.sample(names, 3))
            members = tuple(f"{name}@0" if self.is_written_level else name for name in replicas)
            self.shards[number] = Shard(f"shard{number}", ShardRecord.first(members))
        self.nodes = {
            # Their wall clocks differ by up to an hour, on which nothing may depend.
            name: SimulatedNode(name, folder / f"{name}0", StepClock(START_US + rng.randrange(HOUR_US)))
            for name in names
        }
        self.leases: dict[str, tuple[int, float]] = {}
        """Run, and when it ends."""
        self.registered: dict[str, str] = {}
        """What each node was when it registered last."""
        self.is_etcd_up = True
        self.cut: set[tuple[str, str]] = set()
        """Pairs, of which the second does not hear the first. "etcd" is one of the names."""
        self._arrives: dict[tuple[str, str], float] = {}
        self._is_calm = False

    def member(self, node: SimulatedNode) -> str:
        """Return what a node is in the records."""
        return member_of(node.name, str(node.boot) if self.is_written_level else "")

    # Time.

    def at(self, delay_s: float, do: Callable[[], None], node: SimulatedNode | None = None) -> None:
        """Do something later: on a node only while the process lives that wanted it, and not while it is paused."""
        life = node.life if node is not None else 0

        def happen() -> None:
            if node is None:
                do()
            elif node.life == life:
                if node.paused_until > self.now_s:
                    heapq.heappush(self._queue, (node.paused_until, next(self._order), happen))
                else:
                    do()

        heapq.heappush(self._queue, (self.now_s + delay_s, next(self._order), happen))

    def _advance(self, until_s: float) -> None:
        while self._queue and self._queue[0][0] <= until_s:
            self.now_s, _, do = heapq.heappop(self._queue)
            do()
        self.now_s = until_s

    def run(self, faults: int) -> dict[str, int]:
        """Start all nodes, break things for a while, repair everything, and require that every shard commits again."""
        try:
            for node in self.nodes.values():
                self.start(node)
            self.at(0.1, self._append)
            if self.has_compaction:
                self.at(1, self._compact)
            elif self.has_retention:
                self.at(1, self._retain)
            if self.has_deletions:
                self.at(2, self._delete_logs)
            if self.is_written_level:
                self.at(1, self._recover)
            self._advance(4.0)
            for _ in range(faults):
                self._advance(self.now_s + self.rng.choice((0.05, 0.3, 1.0, 3.0)))
                self._fault(self.rng.choice(self.faults))
            self._is_calm = True
            self._heal()
            before = {number: len(shard.shown) for number, shard in self.shards.items()}
            self._advance(self.now_s + CALM_S)
            for number, shard in self.shards.items():
                if len(shard.shown) <= before[number]:
                    raise Broken(f"{shard.name} commits nothing: {shard.record}")
            self._compare()
            self.counts["records"] = sum(len(shard.shown) for shard in self.shards.values())
            return self.counts
        finally:
            for node in self.nodes.values():
                self._stop(node)

    # Faults.

    def _fault(self, kind: str) -> None:
        self.counts["faults"] += 1
        rng = self.rng
        node = self.nodes[rng.choice(sorted(self.nodes))]
        lasts_s = rng.choice((0.1, 1.0, 4.0, 8.0))
        others = [name for name in sorted(self.nodes) if name != node.name]
        match kind:
            case "kill" | "power" if node.store is not None:
                self._stop(node, is_power_cut=kind == "power")
                self.at(lasts_s, lambda: self.start(node))
            case "blackout":
                for one in self.nodes.values():
                    self._stop(one, is_power_cut=True)
                    self.at(rng.choice((0.1, 1.0, 4.0)), lambda one=one: self.start(one))  # type: ignore[misc]
            case "pause":
                node.paused_until = self.now_s + lasts_s
            case "cut" | "one way":
                pairs = {(node.name, other) for other in rng.sample(others, rng.randint(1, len(others)))}
                self._cut(pairs if kind == "one way" else pairs | {(b, a) for a, b in pairs}, lasts_s)
            case "alone":
                self._cut(
                    {pair for other in others for pair in ((node.name, other), (other, node.name))}, lasts_s
                )
            case "no etcd":
                self._cut({(node.name, "etcd")}, lasts_s)
            case "etcd down":
                self.is_etcd_up = False
                self.at(lasts_s, self._etcd_returns)
            case "slow disk":
                node.flush_s = rng.choice((0.05, 1.0, 5.0))
                self.at(lasts_s, lambda: setattr(node, "flush_s", 0.002))
            case "lease":
                self.leases.pop(node.name, None)
            case "replace":
                number = rng.choice(sorted(self.shards))
                record = self.shards[number].record
                spares = [name for name in sorted(self.nodes) if name not in record.nodes]
                if spares:
                    self._replace(number, self.nodes[rng.choice(spares)], rng.choice(record.replicas))

    def _delete_logs(self) -> None:
        """Delete the log of a shard, and make another one of its name at once; nodes see it when they read etcd."""
        if self._is_calm:
            return
        if self.is_etcd_up:
            self.shards[self.rng.choice(sorted(self.shards))].logs.append([])
            self.counts["logs deleted"] += 1
        self.at(self.rng.choice((0.1, 1, 3)), self._delete_logs)

    def name_of(self, node: SimulatedNode, number: int) -> str:
        """Return the name that the log of a shard at a node has between replicas."""
        return replica_name(self.shards[number].name, 0, node.made.get(number, 0))

    def _retain(self) -> None:
        """Have a leader delete up to all that was shown, now and then: followers that are away miss some of it."""
        number = self.rng.choice(sorted(self.shards))
        for node in self.nodes.values():
            replica = node.replicas.get(number)
            log = node.logs.get(number)
            if replica is not None and log and replica.is_serving and node.paused_until <= self.now_s:
                shown = self.shards[number].logs[node.made.get(number, 0)]
                self._expire(node, number, self.rng.randint(log.start, max(log.start, len(shown))))
        self.at(self.rng.uniform(0.1, 2), self._retain)

    def _expire(self, node: SimulatedNode, number: int, start: int) -> None:
        log, before = node.logs[number], node.logs[number].start
        log.expire(start)
        node.replicas[number].begins(self.name_of(node, number), log.start)
        self.counts["expired"] += log.start > before

    def _compact(self) -> None:
        """Have some replica compact its files."""
        node = self.nodes[self.rng.choice(sorted(self.nodes))]
        if node.logs and node.paused_until <= self.now_s:
            number = self.rng.choice(sorted(node.logs))
            log, replica, name = node.logs[number], node.replicas[number], self.name_of(node, number)
            count = len(log.engine)
            replica.compacted(name, log.compact(replica.logs[name].stable))
            self.counts["compacted"] += count - len(log.engine)
            self._perform(node, number)
        self.at(self.rng.uniform(0.1, 1), self._compact)

    def _replace(self, number: int, node: SimulatedNode, away: str) -> None:
        """Do what an operator's command does: have a node take another one's place, step by step."""
        shard = self.shards[number]
        if away not in shard.record.replicas:
            return
        if self.is_etcd_up:
            record = shard.record
            run = self.leases.get(node.name, (0, 0.0))[0]
            if node.name in dict(record.left):
                self._discard(number, node)
            elif node.name not in record.nodes:
                self._put(number, record.adds(node.name))
            elif node_of(record.leader or "") == away and self.member(node) in record.isr and run:
                self._put(number, record.handed_over(self.member(node), run))
            elif (moved := record.moved(node.name, away, 2)) is not None:
                self.counts["replaced"] += 1
                self._put(number, moved)
        self.at(0.5, lambda: self._replace(number, node, away))

    def _discard(self, number: int, node: SimulatedNode) -> None:
        """Have a node delete what it had of a shard, and say so: from then on its log has another name."""
        cleared = self.shards[number].record.cleared(node.name)
        if cleared is None or node.store is None or not self._reaches_etcd(node):
            return
        if number in node.observed:  # it has its records still, and has promised nothing since
            self._put(number, cleared)
        elif number not in node.replicas:
            self._delete_replica(number, node)
            self._put(number, cleared)

    def _delete_replica(self, number: int, node: SimulatedNode) -> None:
        node.deleted[number] = node.deleted.get(number, 0) + 1
        self.counts["deleted"] += 1

    def _put(self, number: int, record: ShardRecord | None) -> None:
        """Put a record in etcd, from where all nodes that reach it see it."""
        if record is None:
            return
        shard = self.shards[number]
        self.counts["elections"] += record.generation > shard.record.generation
        shard.record, shard.revision = record, shard.revision + 1
        for other in self.nodes.values():
            if self._reaches_etcd(other):
                self._hold(other, number)
                if number in other.replicas:
                    self._see(other, number)

    def _cut(self, pairs: set[tuple[str, str]], lasts_s: float) -> None:
        self.cut |= pairs
        self.at(lasts_s, lambda: self._join(pairs))

    def _join(self, pairs: set[tuple[str, str]]) -> None:
        self.cut -= pairs
        for one, other in sorted(pairs):
            if other != "etcd":
                self._link(one, other)

    def _link(self, one: str, other: str) -> None:
        for name, peer in ((one, other), (other, one)):
            for number, replica in self.nodes[name].replicas.items():
                replica.linked(peer)
                self._perform(self.nodes[name], number)

    def _etcd_returns(self) -> None:
        self.is_etcd_up = True
        self.leases = {name: (run, self.now_s + LEASE_S) for name, (run, _) in self.leases.items()}

    def _heal(self) -> None:
        self._etcd_returns()
        self._join(set(self.cut))
        for node in self.nodes.values():
            node.paused_until, node.flush_s = 0.0, 0.002
            if node.store is None:
                self.start(node)

    # Nodes.

    def start(self, node: SimulatedNode) -> None:
        """Start the process of a node, if it is not running, from what is on its disk."""
        if node.store is not None:
            return
        self.counts["starts"] += 1
        node.files = RecordingFiles(node.root)
        node.store = Store(
            node.root,
            crash_config(compact=self.has_compaction, tombstone_ms=0),
            files=node.files,
            clock=node.clock,
            log_type=ReplicatedLog,
        )
        node.store.maintenance.stop()  # a seed would not repeat a run
        node.life += 1
        self._register(node)

    def _register(self, node: SimulatedNode) -> None:
        """Register in etcd, then read the records of the shards: there are replicas from then on."""
        if not self._reaches_etcd(node):
            self.at(0.5, lambda: self._register(node), node)
            return
        node.run = next(self._runs)
        self.registered[node.name] = self.member(node)
        self.leases[node.name] = node.run, self.now_s + LEASE_S
        self.at(KEEP_ALIVE_S, lambda: self._keep_alive(node), node)
        for number in self.shards:
            if number in node.replicas:
                node.replicas[number].registered(node.run)
                self._perform(node, number)
            self._hold(node, number)

    def _hold(self, node: SimulatedNode, number: int) -> None:
        """Give a node a replica of a shard while it has a place there, or observes, and take it away after that."""
        shard = self.shards[number]
        has_place = node.name in shard.record.nodes
        if has_place and number in node.observed and node.run:
            node.observed.discard(number)
            self.counts["observed"] += 1
            if self.has_compaction:
                self._let_go(node, number)
                self._delete_replica(number, node)
        elif not has_place and self.has_observers and node.run:
            node.observed.add(number)
        if number in node.replicas and not has_place and not self.has_observers:
            self._let_go(node, number)
        elif number not in node.replicas and node.run and (has_place or self.has_observers):
            log = self._open_log(node, number)
            states = {self.name_of(node, number): log.state()}
            replica = self.replica_type(self.member(node), node.run, 2, states)
            node.replicas[number] = replica
            node.deadlines[number] = Deadlines(replica, self.now_s)
            self._see(node, number)
            self.at(self.rng.random() * TICK_S, lambda: self._tick(node, number, replica), node)
        elif number in node.replicas and number in node.logs and node.made.get(number, 0) < shard.deletions:
            self._drop_log(node, number)

    def _open_log(self, node: SimulatedNode, number: int) -> EngineReplicaLog:
        """Open the log of a shard as etcd has it; an earlier one of its name is deleted first."""
        shard, store = self.shards[number], node.store
        assert store is not None
        name = shard.name + "again" * node.deleted.get(number, 0)
        if self.has_deletions:
            log_id = replica_id("simulated", shard.name, 0, shard.deletions)
            if (name, 0) in store.log_names() and self.is_other(store.log(name).id, log_id):
                store.delete_log(name)
            make_replica_folder(store, name, 0, log_id)
            node.made[number] = shard.deletions
        log = node.logs[number] = EngineReplicaLog(store, name)
        return log

    def is_other(self, here: int, in_etcd: int) -> bool:
        """Return whether the log of a node is not the one that etcd has, by their ids."""
        return here != in_etcd

    def _drop_log(self, node: SimulatedNode, number: int) -> None:
        """Replicate a deleted log no more, and have its files deleted a moment later: any fault may come in between."""
        replica = node.replicas[number]
        replica.log_removed(self.name_of(node, number))
        node.logs.pop(number).engine.follow()
        node.flushing.discard(number)
        self._perform(node, number)

        def make_next() -> None:
            if node.replicas.get(number) is not replica:
                return
            log = self._open_log(node, number)
            replica.log_added(self.name_of(node, number), log.state())
            if isinstance(replica.role, Leader) and replica.is_serving:
                log.engine.lead(replica.role.generation)
            self._perform(node, number)

        self.at(self.rng.uniform(0, 0.3), make_next, node)

    def _let_go(self, node: SimulatedNode, number: int) -> None:
        if number in node.replicas:
            if number in node.logs:
                node.logs.pop(number).engine.follow()
            for part in (node.replicas, node.deadlines):
                del part[number]
            node.flushing.discard(number)

    def _stop(self, node: SimulatedNode, *, is_power_cut: bool = False) -> None:
        if node.store is None or node.files is None:
            return
        node.life += 1
        files, root = node.files, node.root
        node.flushed = {
            number: (node.made.get(number, 0), log.engine.synced_offset) for number, log in node.logs.items()
        }
        operations = list(files.operations)
        if is_power_cut:
            disk = Disk(files)
            for number, operation in enumerate(operations):
                disk.apply(number, operation)
            image = disk.image(self.rng, self.rng.choice(list(Loss)))
            node.root = self.folder / f"{node.name}{node.life}"
            image.write(node.root)
            node.clock.reboot(self.rng.randbytes(16))
            node.boot += 1
        else:
            files.stop()
            node.root = self.folder / f"{node.name}{node.life}"
            shutil.copytree(root, node.root)
        node.store.close()  # of the old folder: what the process would have done after its death
        shutil.rmtree(root)
        node.store = node.files = None
        node.run = 0
        node.logs, node.replicas, node.deadlines, node.flushing = {}, {}, {}, set()

    def _tick(self, node: SimulatedNode, number: int, replica: Replica) -> None:
        if node.replicas.get(number) is not replica:
            return
        runs = {
            self.registered[name]: run for name, (run, ends_s) in self.leases.items() if ends_s > self.now_s
        }
        if self._reaches_etcd(node):
            self._hold(node, number)
            if number not in node.replicas:
                return
            self._see(node, number)
        node.deadlines[number].tick(self.now_s, runs)
        self._perform(node, number)
        self.at(TICK_S, lambda: self._tick(node, number, replica), node)

    def _append(self) -> None:
        """Let clients append where a leader serves."""
        for node in self.nodes.values():
            for number, replica in list(node.replicas.items()):
                if (
                    node.paused_until <= self.now_s
                    and replica.is_serving
                    and isinstance(replica.role, Leader)
                    and number in node.logs
                ):
                    log, count = node.logs[number], self.rng.randint(1, 3)
                    log.append(
                        [f"topic/{self.rng.randrange(30)}" for _ in range(count)],
                        [self._payload(node) for _ in range(count)],
                    )
                    replica.appended(self.name_of(node, number), log.end, log.engine.names_count)
                    self._flush(node, number)
                    self._perform(node, number)
        self.at(self.rng.uniform(0.05, 0.4), self._append)

    def _payload(self, node: SimulatedNode) -> bytes:
        if self.has_compaction and self.rng.random() < 0.3:
            return b""
        return b"%s %d" % (node.name.encode(), next(self._order))

    def _flush(self, node: SimulatedNode, number: int) -> None:
        replica, log, name = node.replicas[number], node.logs[number], self.name_of(node, number)
        if self.is_written_level:
            replica.durable(name, log.end)
        if number in node.flushing:
            return
        node.flushing.add(number)

        def flush() -> None:
            if node.replicas.get(number) is not replica or node.logs.get(number) is not log:
                return
            node.flushing.discard(number)
            replica.durable(name, log.engine.sync())
            self._perform(node, number)

        later_s = self.rng.choice((0.1, 1.0)) if self.is_written_level else 0.0
        self.at(later_s + node.flush_s * self.rng.uniform(0.5, 2), flush, node)

    # etcd.

    def _reaches_etcd(self, node: SimulatedNode) -> bool:
        return self.is_etcd_up and (node.name, "etcd") not in self.cut

    def _keep_alive(self, node: SimulatedNode) -> None:
        if self._reaches_etcd(node):
            run, ends_s = self.leases.get(node.name, (0, 0.0))
            if run != node.run or ends_s < self.now_s:
                self._register(node)
                return
            self.leases[node.name] = run, self.now_s + LEASE_S
        self.at(KEEP_ALIVE_S, lambda: self._keep_alive(node), node)

    def _see(self, node: SimulatedNode, number: int) -> None:
        shard = self.shards[number]
        record, revision = shard.record, shard.revision  # as it was read; it arrives later

        def arrive() -> None:
            if number in node.replicas:
                node.replicas[number].record_seen(record, revision)
                self._perform(node, number)

        self.at(self.rng.uniform(0.001, 0.05), arrive, node)

    def _propose(self, node: SimulatedNode, number: int, proposal: Propose) -> None:
        """Run a transaction after a while; its answer may be lost."""
        shard = self.shards[number]

        def arrive() -> None:
            if not self._reaches_etcd(node) or proposal.revision != shard.revision:
                return
            runs = {name: run for name, (run, ends_s) in self.leases.items() if ends_s > self.now_s}
            is_present = proposal.present is None or runs.get(proposal.present[0]) == proposal.present[1]
            is_absent = proposal.absent is None or runs.get(proposal.absent[0]) != proposal.absent[1]
            if is_present and is_absent:
                self._put(number, proposal.record)
            elif self.rng.random() < 0.5 and number in node.replicas:
                node.replicas[number].refused(proposal)
                self._perform(node, number)

        self.at(self.rng.uniform(0.001, 0.1), arrive)

    # Actions.

    def _perform(self, node: SimulatedNode, number: int) -> None:
        replica, held, name = node.replicas[number], node.logs.get(number), self.name_of(node, number)
        log = cast(EngineReplicaLog, held)  # what follows is about one that is there, if not said otherwise
        while actions := replica.take_actions():
            for action in actions:
                match action:
                    case Serve() | StepDown() if held is None:
                        pass  # it is deleted, and the next one is not there yet
                    case Send(member, frame):
                        self._send(node, member, number, frame)
                    case Ship():
                        for frame in _frames(replica, log.engine, action):
                            self._send(node, action.member, number, frame)
                    case Append(frame):
                        append(log.engine, frame)
                        self._flush(node, number)
                    case Cut(_, offset, names, is_given_up):
                        self.counts["cuts"] += 1
                        self.counts["given up"] += is_given_up
                        log.engine.cut(offset, names, is_given_up=is_given_up)
                    case Clear(_, start):
                        self.counts["cuts"] += 1
                        log.engine.reset(start)
                    case Serve(generation):
                        assert replica.record is not None
                        unclean = [one.resumes for one in replica.record.unclean if one.is_of(name)]
                        log.engine.lead(generation, max(unclean, default=0))
                        if log.end > replica.logs[name].end:
                            replica.appended(name, log.end, log.engine.names_count)
                            self._flush(node, number)
                    case StepDown():
                        log.engine.follow()
                    case Show(_, committed):
                        self._show(node, number, committed)
                    case Expire(_, start):
                        self._expire(node, number, start)
                    case Propose():
                        self._propose(node, number, action)
                    case Refresh() if self._reaches_etcd(node):
                        self._see(node, number)
                    case Alarm(reason):
                        raise Broken(f"{node.name}, {name}: {reason}")

    def _send(self, node: SimulatedNode, member: str, number: int, frame: Frame) -> None:
        receiver, pair = self.nodes[node_of(member)], (node.name, node_of(member))
        sender = self.sender(node)
        arrives_s = max(self._arrives.get(pair, 0.0), self.now_s + self.rng.uniform(0.0002, 0.01))
        self._arrives[pair] = arrives_s

        def arrive() -> None:
            if pair not in self.cut and number in receiver.replicas:
                receiver.deadlines[number].heard(sender(), self.now_s)
                receiver.replicas[number].received(sender(), frame)
                self._perform(receiver, number)

        if pair not in self.cut:
            self.at(arrives_s - self.now_s, arrive, receiver)

    def sender(self, node: SimulatedNode) -> Callable[[], str]:
        """Return what says, when a frame arrives, from whom it is: the member that had sent it."""
        member = self.member(node)
        return lambda: member

    # Recovery by command.

    def _recover(self) -> None:
        """Do what an operator does where all that were in sync have lost power: start all nodes, and have the one lead
        that has the most, or name another one."""
        for number, shard in self.shards.items():
            record, present = shard.record, set(self.registered.values())
            nodes = [self.nodes[name] for name in record.replicas]
            # Before all have seen the last deletion, there is nothing to compare.
            are_up = all(
                number in one.logs and one.made.get(number, 0) == shard.deletions and one.name in self.leases
                for one in nodes
            )
            if self.is_etcd_up and are_up and not present & record.isr:
                cluster = ClusterValue("", len(self.shards), 3, 2, WRITTEN_LEVEL, ack=Ack.WRITTEN)
                reports = [self._report(one, number) for one in nodes]
                chosen = _best(reports)
                if chosen is None:
                    raise Broken(f"{shard.name}: no replica has what the others have: {reports}")
                if self.rng.random() < 0.3 and not self.has_compaction:
                    start = max(one.logs[0].start for one in reports)
                    chosen = self.rng.choice([one for one in reports if one.logs[0].end >= start])
                in_sync = [one for one in reports if one.node in map(node_of, record.isr)]
                deletions = {shard.name: shard.deletions}
                lost = _given_up(record.generation + 1, chosen, in_sync, cluster, deletions)
                self._give_up(shard, number, lost[0], is_best=chosen == _best(reports))
                self._put(number, record.recovered(chosen.member, chosen.run, lost))
        self.at(0.5, self._recover)

    def _report(self, node: SimulatedNode, number: int) -> Report:
        state, log = node.replicas[number].logs[self.name_of(node, number)], node.logs[number]
        last, name = state.last_generation, self.shards[number].name
        found = LogState(
            number, name, state.start, state.end, 0, last, last, state.damaged, False, log.engine.ceiling
        )
        return Report(node.name, node.name, node.run, (found,), str(node.boot))

    def _give_up(self, shard: Shard, number: int, lost: Unclean, *, is_best: bool) -> None:
        """Require that the best replica gives up what was flushed nowhere, and that offsets stay empty."""
        self.counts["recovered"] += 1
        nodes = [self.nodes[node_of(member)] for member in shard.record.isr]
        ends = [one.flushed.get(number, (0, 0)) for one in nodes]
        flushed = max(min(end, len(shard.shown)) if made == shard.deletions else 0 for made, end in ends)
        if is_best and lost.offset < flushed:
            raise Broken(f"{shard.name} has {lost.offset} records, and {flushed} were flushed")
        if lost.offset < len(shard.shown) > lost.resumes:
            raise Broken(f"{shard.name} has shown {len(shard.shown)} records and continues at {lost}")
        shard.shown[lost.offset :] = [None] * len(shard.shown[lost.offset :])
        shard.gaps[shard.deletions] |= set(range(lost.offset, lost.resumes))

    # What must hold.

    def _show(self, node: SimulatedNode, number: int, committed: int) -> None:
        """Compare what readers of a node see now with what was ever seen, and with what the in-sync members hold."""
        shard, log, made = self.shards[number], node.logs[number], node.made.get(number, 0)
        shown = shard.logs[made]
        log.engine.show(committed)
        start, before = log.start, min(committed, len(shown))
        if start > len(shown):
            raise Broken(
                f"{node.name} begins at {start}, and {len(shown)} records of {shard.name} were shown"
            )
        seen = log.read(start, committed)
        gaps = shard.gaps[made]
        changed = {offset for offset in seen if offset < before and seen[offset] != shown[offset]}
        changed |= gaps & seen.keys()
        empty = sum(start <= offset < committed for offset in gaps)
        if changed or (len(seen) != committed - start - empty and not self.has_compaction):
            raise Broken(f"{node.name} shows other records of {shard.name} than were shown: {seen}")
        if committed > len(shown) and not isinstance(node.replicas[number].role, Leader):
            raise Broken(f"{node.name} shows {committed} records of {shard.name}, {len(shown)} are committed")
        shown += [seen.get(offset) for offset in range(before, committed)]
        needed = len(shown)
        while needed and shown[needed - 1] is None:
            needed -= 1
        for member in shard.record.isr:
            there = self.nodes[node_of(member)]
            other, has = there.logs.get(number), there.made.get(number, 0)
            if self.member(there) != member:
                continue  # ended when its machine was booted again
            if other is not None and (has < made or (has == made and other.end < needed)):
                raise Broken(f"{member} is in sync and has {other.end} of {needed} records")

    def _compare(self) -> None:
        """After a calm time all replicas that follow have the same files."""
        for number, shard in self.shards.items():
            observers = [node.name for node in self.nodes.values() if number in node.observed]
            for member in sorted([*shard.record.isr, *(observers if not self.has_compaction else ())]):
                if member in shard.record.isr and member != self.member(self.nodes[node_of(member)]):
                    raise Broken(f"{member} is in sync in {shard.name}, and was booted again since")
                log = self.nodes[node_of(member)].logs[number]
                held = log.held(len(shard.shown))
                shown = {offset: one for offset, one in enumerate(shard.shown) if one is not None}
                if self.has_compaction:
                    held, shown = map(_latest, (held, shown))
                if held != {offset: one for offset, one in shown.items() if offset >= log.start}:
                    raise Broken(f"{member} has other records of {shard.name} than were shown")


def _latest(records: dict[int, tuple[str, bytes]]) -> dict[int, tuple[str, bytes]]:
    """Return what a table of the last payload of each topic has, by offset."""
    last = {topic: offset for offset, (topic, _) in records.items()}
    return {offset: records[offset] for offset in last.values() if records[offset][1]}


def _frames(replica: Replica, log: ReplicatedLog, ship: Ship) -> list[Records]:
    """Make frames of records, none with records of two segments."""
    frames, first, names = [], ship.first, ship.names
    while first < ship.end:
        found = log.read_stored(first, ship.end, max_bytes=SHIP_BYTES)
        upto = max(names, found.names)
        new = tuple(log.topic_name(number) or "" for number in range(names, upto))
        generation = replica.logs[ship.log].generation_at(first)
        head = replica.generation, ship.log, first, found.end, generation
        stored = StoredData(found.entries, found.data)
        frames.append(Records(*head, names, new, stored, found.begins_segment))
        first, names = found.end, upto
    return frames
