"""What may befall a cluster on machines: each begins a fault, and `heal` ends all of them."""

import functools
import random
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from tests.cluster.machine_cluster import BUCKET, ETCDS, KEYS, NODES, MachineCluster
from tests.cluster.small_disk import remove_all
from timestone_cluster.errors import ClusterError
from timestone_cluster.etcd.client import EtcdClient
from timestone_cluster.moving import drain_node, remove_node, undrain_node, unremove_node
from timestone_cluster.operations import cluster_status

STOP_S = 60.0
"""Time for an orderly stop beside any other fault, on a busy machine."""


PARTITIONS = (
    "halves",
    "alone",
    "one-way",
    "pair",
    "no-etcd",
    "leader-etcd-only",
    "leader-followers-only",
)


class Nemesis:
    """Faults of one cluster, and what has to be done to end them."""

    def __init__(self, cluster: MachineCluster, chance: random.Random) -> None:
        self.cluster, self._chance = cluster, chance
        self.killed_leaders: list[float] = []
        """When leaders were killed."""
        self._gone: list[str] = []
        """Ids of nodes whose disks are lost."""
        self.faults: dict[str, Callable[[], str]] = {
            "kill": self.kill,
            "kill-leader": self.kill_leader,
            "suspend": self.suspend,
            "stop": self.stop,
            "drain": self.drain,
            "halves": self.halves,
            "alone": self.alone,
            "one-way": self.one_way,
            "pair": self.pair,
            "no-etcd": self.no_etcd,
            "leader-etcd-only": self.leader_etcd_only,
            "leader-followers-only": self.leader_followers_only,
            "etcd-one": self.etcd_one,
            "etcd-all": self.etcd_all,
            "etcd-compact": self.etcd_compact,
            "bucket-stop": self.bucket_stop,
            "bucket-suspend": self.bucket_suspend,
            "remove": self.remove,
            "replace": self.replace,
        }
        if cluster.clocks:
            self.faults["clock"] = self.clock
        if cluster.disks:
            self.faults["full-disk"] = self.full_disk

    def _leader(self) -> str:
        """Return the leader, or any node while none leads."""
        with suppress(TimeoutError):
            return self.cluster.leader(5)
        return self._chance.choice(NODES)

    def _any(self) -> str:
        """Return the leader or another node."""
        return self._chance.choice([self._leader(), self._chance.choice(NODES)])

    # Processes

    def kill(self) -> str:
        names = self._chance.sample(NODES, self._chance.randint(1, 2))
        for name in names:
            self.cluster.nodes[name].kill()
        self._perhaps_start(names)
        return ", ".join(names)

    def kill_leader(self) -> str:
        name = self._leader()
        self.killed_leaders.append(time.monotonic())
        self.cluster.nodes[name].kill()
        self._perhaps_start([name])
        return name

    def _perhaps_start(self, names: Sequence[str]) -> None:
        """Start nodes at once, at times, instead of at the end of the round."""
        if self._chance.random() < 0.3:
            for name in names:
                self.cluster.nodes[name].start()

    def suspend(self) -> str:
        name = self._any()
        self.cluster.nodes[name].signal(signal.SIGSTOP)
        return name

    def stop(self) -> str:
        name = self._any()
        node = self.cluster.nodes[name]
        if node.process is None:
            return f"{name} was down"
        node.signal(signal.SIGCONT)
        began_s = time.monotonic()
        node.stop(STOP_S)
        return f"{name}, in {time.monotonic() - began_s:.1f} s"

    def drain(self) -> str:
        name = self._any()
        node_id = self.cluster.nodes[name].node_id()
        try:
            self.cluster.ask(self._giving_away(drain_node, node_id, 10))
        except (TimeoutError, ValueError, ClusterError) as error:
            return f"{name}: {type(error).__name__}"
        return name

    # Membership

    def remove(self) -> str:
        name = self._any()
        node_id = self.cluster.nodes[name].node_id()
        try:
            self.cluster.ask(self._giving_away(remove_node, node_id, 20))
        except (TimeoutError, ValueError, ClusterError) as error:
            return f"{name}: {type(error).__name__}"
        return name

    def replace(self) -> str:
        """Lose a disk: another node, with an empty one, comes in the place of the lost one."""
        name = self._any()
        node = self.cluster.nodes[name]
        self._gone.append(node.node_id())
        node.kill()
        remove_all(node.folder)
        node.start()
        return f"{name}, {self._gone[-1]} is lost"

    # Clocks and disks

    def clock(self) -> str:
        """Set the wall clock of a node or of all, each to another time."""
        names = self._chance.choice([[self._any()], NODES])
        wrong_s = {name: self._chance.randint(-3600, 3600) for name in names}
        for name, seconds in wrong_s.items():
            self.cluster.clocks[name].set(seconds)
        return ", ".join(f"{name} {seconds:+d} s" for name, seconds in wrong_s.items())

    def full_disk(self) -> str:
        """Have no space left, or less than appends need."""
        name, free_bytes = self._any(), self._chance.choice([0, 1 << 16, 32 << 20, 72 << 20])
        self.cluster.disks[name].fill(free_bytes)
        return f"{name}, {free_bytes} bytes are free"

    # The network

    def _cut(self, ones: Sequence[str], others: Sequence[str], *, both: bool = True) -> str:
        self.cluster.network.cut(ones, others, both=both)
        return f"{' '.join(ones)} {'|' if both else '>|'} {' '.join(others)}"

    def halves(self) -> str:
        machines = [*NODES, *ETCDS]
        self._chance.shuffle(machines)
        count = self._chance.randint(3, 5)
        return self._cut(machines[:count], machines[count:])

    def alone(self) -> str:
        name = self._any()
        return self._cut([name], [one for one in (*NODES, *ETCDS, BUCKET) if one != name])

    def one_way(self) -> str:
        """What a node sends is lost, to another one or to all; or what all send to it."""
        name = self._any()
        others = [one for one in (*NODES, *ETCDS) if one != name]
        match self._chance.randrange(3):
            case 0:
                return self._cut([name], [self._chance.choice(others)], both=False)
            case 1:
                return self._cut([name], others, both=False)
        return self._cut(others, [name], both=False)

    def pair(self) -> str:
        """Two nodes do not reach each other; all else reaches both."""
        name = self._leader()
        return self._cut([name], [self._chance.choice([one for one in NODES if one != name])])

    def no_etcd(self) -> str:
        names = self._chance.sample(NODES, self._chance.choice([1, 2, 5]))
        return self._cut(names, ETCDS)

    def leader_etcd_only(self) -> str:
        name = self._leader()
        return self._cut([name], [one for one in NODES if one != name])

    def leader_followers_only(self) -> str:
        return self._cut([self._leader()], ETCDS)

    # etcd and the bucket

    def etcd_one(self) -> str:
        name = self._chance.choice(ETCDS)
        self.cluster.etcd[name].stop()
        return name

    def etcd_all(self) -> str:
        for name in ETCDS:
            self.cluster.etcd[name].stop()
        return ""

    def etcd_compact(self) -> str:
        """Compact the history, and defragment each member in turn."""
        try:
            self.cluster.etcd[self._chance.choice(ETCDS)].compact()
            for name in ETCDS:
                self.cluster.etcd[name].defragment()
        except Exception as error:
            return type(error).__name__
        return ""

    def bucket_stop(self) -> str:
        self.cluster.bucket.stop()
        return ""

    def bucket_suspend(self) -> str:
        self.cluster.bucket.pause()
        return ""

    # The end of all

    def heal(self, limit_s: float) -> None:
        """End all faults, and wait until lost nodes have no place any more."""
        self.cluster.network.heal()
        for clock in self.cluster.clocks.values():
            clock.set(0)
        for disk in self.cluster.disks.values():
            disk.empty()
        for member in self.cluster.etcd.values():
            member.launch()
        for node in self.cluster.nodes.values():
            node.signal(signal.SIGCONT)
            node.start()
        self.cluster.bucket.resume()
        if self.cluster.bucket.has_ended:
            self.cluster.bucket.start()
        for member in self.cluster.etcd.values():
            member.start(limit_s)  # one that was cut off waits for others to dial it
        self.cluster.until(lambda status: len(status.nodes) >= len(NODES), limit_s)
        for found in self.cluster.insist(lambda etcd: cluster_status(etcd, KEYS), limit_s).nodes:
            for undo in (undrain_node, unremove_node):
                with suppress(ValueError):  # it was not drained or removed
                    self.cluster.insist(functools.partial(undo, keys=KEYS, node=found.id), limit_s)
        for lost in self._gone:
            with suppress(ValueError):  # it had no replica
                self.cluster.insist(self._giving_away(remove_node, lost, limit_s), limit_s)
        self._gone.clear()

    @staticmethod
    def _giving_away(
        work: Callable[..., Awaitable[None]], node_id: str, limit_s: float
    ) -> Callable[[EtcdClient], Awaitable[None]]:
        return functools.partial(work, keys=KEYS, node=node_id, timeout_s=limit_s, progress=lambda line: None)
