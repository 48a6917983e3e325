"""Placing of replicas and leaders by the nodes themselves: one at a time, the balancer, does what `balancer` says.

Each step is a transaction on what etcd has, so the key of the balancer is for tidiness only."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from timestone.metrics.metric import Metric, metric
from timestone_cluster.affinity import Affinity, Arrivals
from timestone_cluster.balancer import (
    Change,
    HandOver,
    Member,
    Settle,
    Situation,
    Step,
    is_led,
    next_steps,
    placed,
)
from timestone_cluster.errors import EtcdUnavailable, UndecodableShardRecord, UndecodableValue
from timestone_cluster.etcd.client import Coordinator
from timestone_cluster.etcd.keys import (
    ClusterKeys,
    ClusterValue,
    NodeValue,
    decode_arrivals,
    decode_pin,
    encode_arrivals,
)
from timestone_cluster.etcd.registry import Registry
from timestone_cluster.replica import Replica
from timestone_cluster.shard.shipping import now_s
from timestone_cluster.shard_record import ShardRecord, node_of

_LOGGER = logging.getLogger("timestone.cluster")
_LOOK_S = 0.5
_ARRIVALS_S = 10.0
"""Between two counts of clients in etcd."""
_VAIN_S = 20.0
"""A hand-over that has not happened for so long is given up, and not wanted again for three times as long."""

_HELP = {
    "shards": "Shards of which this node has a replica.",
    "observed": "Shards that it follows without a place in them.",
    "leading": "Shards that it leads and serves.",
    "under_replicated": "Shards that it leads with fewer in-sync replicas than replicas.",
    "alarms": "Replicas that stay out or whose record is gone from etcd, and 1 while it takes nothing from etcd.",
    "links": "Connections to other nodes that are up.",
    "serves": "Shards whose MQTT clients it serves.",
    "forwarded": "Records that were appended to shards of other leaders.",
    "relays": "MQTT clients that are passed on to another node now.",
    "relayed": "MQTT clients that were passed on since the start.",
    "given": "MQTT clients whose sockets were given to another worker of the server, since the start.",
    "relays_failed": "MQTT clients that were not passed on, since the start.",
}


class Placement:
    """What one node knows and does of placing. For one event loop."""

    def __init__(
        self,
        etcd: Coordinator,
        keys: ClusterKeys,
        registry: Registry,
        node: str,
        lease: Callable[[], int],
        arrivals: Callable[[], Arrivals],
    ) -> None:
        """lease: of this node's registration; 0 without one. arrivals: returns the clients of this node."""
        self._etcd, self._keys, self._registry = etcd, keys, registry
        self._node, self._lease, self._arrivals = node, lease, arrivals
        self._affinity = Affinity()
        self._told_s, self._told = 0.0, (0, b"")
        self._seen_s: dict[str, float] = {}
        """When nodes were last known to be registered, or first heard of."""
        self._handed_s = now_s()
        self._wanted_s: dict[int, float] = {}
        self._vain_s: dict[int, float] = {}
        self._is_balancer = self._is_spare = False

    async def place_new(self, number: int, cluster: ClusterValue) -> None:
        """Put the first record of a shard, once there are enough nodes for it. Raises EtcdUnavailable."""
        nodes = {node: one for node, one in self._members(set()).items() if one.run and not one.is_leaving}
        if len(nodes) < cluster.replicas or self._node not in nodes:
            return
        members = {node_of(member): member for member in self._registry.members}
        record = ShardRecord.first(tuple(members[node] for node in placed(number, nodes, cluster.replicas)))
        key, mark = self._keys.shard(number), self._keys.placed(number)
        outcome = await self._etcd.put(key, record.encode(), revision=0, present=(mark, 0), also=mark)
        self._registry.note(outcome)

    async def run(self, cluster: Callable[[], ClusterValue | None]) -> None:
        """Place until cancelled. cluster: returns what etcd has of it; None while it cannot be relied on."""
        while True:
            await asyncio.sleep(_LOOK_S)
            found = cluster()
            self._members(set())  # who is away since when, for the time when this node is the balancer
            try:
                is_time = await self._tell_arrivals()
                if found is not None and await self._leads_placing():
                    if is_time and found.balance:
                        await self._follow_clients(self.situation(found), found.affinity_ms / 1000)
                    await self._place(self.situation(found), found.balance)
            except EtcdUnavailable as error:
                _LOGGER.debug("placing: %s", error)

    async def _leads_placing(self) -> bool:
        """Return whether this node is the balancer, or becomes it because none is."""
        pair, lease = self._registry.pairs.get(self._keys.balancer), self._lease()
        if pair is None and lease:
            value = self._node.encode()
            self._registry.note(await self._etcd.put(self._keys.balancer, value, revision=0, lease=lease))
            pair = self._registry.pairs.get(self._keys.balancer)
        is_balancer = bool(lease) and pair is not None and pair.value == self._node.encode()
        if is_balancer and not self._is_balancer:
            _LOGGER.info("this node places replicas from now on")
            self._handed_s = now_s()
        self._is_balancer = is_balancer
        return is_balancer

    # What is known.

    def situation(self, cluster: ClusterValue) -> Situation:
        """Return what the next steps depend on."""
        shards: dict[int, ShardRecord] = {}
        for number, pair in self._registry.below("shards").items():
            try:
                shards[int(number)] = ShardRecord.decode(pair.value)
            except (UndecodableShardRecord, ValueError) as error:
                _LOGGER.error("shard %s is not placed: %s", number, error)
        now = now_s()
        return Situation(
            nodes=self._members({node for record in shards.values() for node in record.nodes}),
            shards=shards,
            replicas=cluster.replicas,
            min_isr=cluster.min_isr,
            pinned=pins(self._registry),
            near=_nodes_of_shards(self._registry, "near"),
            wanted=wanted_leaders(self._registry),
            vain=frozenset(number for number, ends_s in self._vain_s.items() if now < ends_s),
            replace_after_s=cluster.replace_after_ms / 1000,
            leader_pause_s=cluster.leader_pause_ms / 1000,
            handed_s=now - self._handed_s,
        )

    def _members(self, holding: set[str]) -> dict[str, Member]:
        """Return the nodes that are registered, were so, or hold something."""
        registered, past = self._registry.below("nodes"), self._registry.below("members")
        leaving, draining = self._registry.below("leaving"), self._registry.below("draining")
        now, found = now_s(), {}
        for node in {*registered, *past, *holding}:
            pair = registered.get(node, past.get(node))
            try:
                value = NodeValue.decode(pair.value) if pair is not None else NodeValue(node, "")
            except UndecodableValue as error:
                _LOGGER.error("node %s: %s", node, error)
                value = NodeValue(node, "")
            run = registered[node].created if node in registered else 0
            seen_s = self._seen_s[node] = now if run else self._seen_s.get(node, now)
            states = node in leaving, node in draining or value.is_full or value.is_stopping, value.is_behind
            found[node] = Member(value.zone, value.weight, run, now - seen_s, *states)
        return found

    # Leaders near their clients.

    async def _tell_arrivals(self) -> bool:
        """Write how many clients this node has, if it is time; return whether it was."""
        if not (lease := self._lease()) or now_s() < self._told_s + _ARRIVALS_S:
            return False
        self._told_s, value = now_s(), encode_arrivals(self._arrivals())
        if self._told != (lease, value):
            await self._etcd.put(self._keys.arrivals(self._node), value, lease=lease)
            self._told = lease, value
        return True

    async def _follow_clients(self, situation: Situation, after_s: float) -> None:
        """Note through which nodes most clients come in, once that has stood for a while."""
        arrivals = {}
        for node, pair in self._registry.below("arrivals").items():
            try:
                arrivals[node] = decode_arrivals(pair.value)
            except UndecodableValue as error:
                _LOGGER.error("clients of node %s: %s", node, error)
        led = {number: one for number, one in situation.shards.items() if is_led(situation, one)}
        due = self._affinity.due(led, arrivals, situation.near, after_s=after_s, now_s=now_s())
        for number, near in due.items():
            if near is None:
                _LOGGER.info("shard %d: its clients come in through other nodes", number)
                await self._etcd.delete(self._keys.near(number))
            else:
                _LOGGER.info("shard %d: most clients come in through %s", number, self._registry.shown(near))
                await self._etcd.put(self._keys.near(number), near.encode())
            self._registry.wake()

    # What is done.

    async def _place(self, situation: Situation, is_wanted: bool) -> None:
        """Do the steps that are next."""
        for step in next_steps(situation) if is_wanted else ():
            await self._do(step, situation)
        self._wanted_s = {number: self._wanted_s.get(number, now_s()) for number in situation.wanted}
        for number in [one for one, since_s in self._wanted_s.items() if now_s() - since_s > _VAIN_S]:
            _LOGGER.warning("shard %d: the hand-over has not happened; tried again later", number)
            self._vain_s[number] = now_s() + 3 * _VAIN_S
            await self._do(Settle(number), situation)

    async def _do(self, step: Step, situation: Situation) -> None:
        match step:
            case Change(number, record, reason, node):
                pair = self._registry.pairs.get(self._keys.shard(number))
                if pair is None or ShardRecord.decode(pair.value) != situation.shards[number]:
                    return  # has changed since
                present = None if node is None else (self._keys.node(node), situation.nodes[node].run)
                key, value = self._keys.shard(number), record.encode()
                outcome = await self._etcd.put(key, value, revision=pair.revision, present=present)
                self._registry.note(outcome)
                if outcome.is_done:
                    _LOGGER.info("shard %d: %s", number, self._registry.shown(reason))
            case HandOver(number, node, reason):
                key = self._keys.wanted(number)
                outcome = await self._etcd.put(key, node.encode(), revision=0, lease=self._lease())
                text = self._registry.shown(f"to be led by {node}: {reason}")
                _LOGGER.info("shard %d: %s", number, text)
                self._registry.note(outcome)
            case Settle(number):
                await self._etcd.delete(self._keys.wanted(number))
                self._handed_s = now_s()
                self._registry.wake()

    def note_spare(self, records: int, shards: int, *, is_spare: bool) -> None:
        """Say once that a node has no replica, though all shards have a record."""
        is_spare = is_spare and records == shards
        if is_spare and not self._is_spare:
            _LOGGER.info("this node holds no shard: others have all replicas")
        self._is_spare = is_spare


def replica_counts(replicas: Sequence[Replica]) -> dict[str, int]:
    """Return counts of the replicas of a node, by what they are now."""
    led = [one.record for one in replicas if one.is_serving and one.record is not None]
    return {
        "shards": sum(not one.observes for one in replicas),
        "observed": sum(one.observes for one in replicas),
        "leading": len(led),
        "under_replicated": sum(len(record.isr) < len(record.replicas) for record in led),
    }


def node_metrics(status: Mapping[str, int]) -> list[Metric]:
    """Return what `Node.status` has as metrics."""
    return [metric(name, "unknown", _HELP[name], value) for name, value in status.items()]


def pins(registry: Registry) -> dict[int, tuple[str, ...]]:
    """Return the nodes of shards that were placed by command, as far as they are valid."""
    found = {}
    for number, pair in registry.below("pinned").items():
        try:
            found[int(number)] = decode_pin(pair.value)
        except ValueError as error:
            _LOGGER.error("pinned shard %s: %s", number, error)
    return found


def wanted_leaders(registry: Registry) -> dict[int, str]:
    """Return the hand-overs under way: the next leader by the number of the shard."""
    return _nodes_of_shards(registry, "wanted")


def _nodes_of_shards(registry: Registry, name: str) -> dict[int, str]:
    found = registry.below(name).items()
    return {int(number): pair.value.decode(errors="replace") for number, pair in found if number.isdecimal()}
