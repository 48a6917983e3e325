"""What an operator does with a cluster in etcd: make it, make a log, look at it, put a node in the place of another."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from timestone_cluster.errors import ClusterExists, EtcdUnavailable
from timestone_cluster.etcd.client import Coordinator
from timestone_cluster.etcd.keys import MOST_SHARDS, ClusterKeys, ClusterValue, NodeValue, check_log_name
from timestone_cluster.etcd.registry import below, cluster_of
from timestone_cluster.shard_record import MOST_REPLICAS, ShardRecord, node_of

_PAUSE_S = 0.5


class NodeStatus(NamedTuple):
    """A registered node."""

    id: str
    name: str
    address: str
    run: int


class ShardStatus(NamedTuple):
    """A shard as etcd has it. Nodes are ids."""

    number: int
    generation: int
    leader: str | None
    in_sync: tuple[str, ...]
    replicas: tuple[str, ...]
    adding: tuple[str, ...]
    """Nodes that copy the shard in order to become replicas."""
    is_led: bool
    """Whether its leader is registered."""
    is_lost: bool = False
    """Whether it had a record that is gone from etcd."""


class ClusterStatus(NamedTuple):
    """A cluster as etcd has it."""

    cluster: ClusterValue
    logs: tuple[str, ...]
    nodes: tuple[NodeStatus, ...]
    shards: tuple[ShardStatus, ...]


async def make_cluster(etcd: Coordinator, keys: ClusterKeys, *, shards: int, replicas: int) -> ClusterValue:
    """Make a cluster, whose numbers cannot change later. Raises ValueError, ClusterExists, EtcdUnavailable."""
    if not 1 <= shards <= MOST_SHARDS:
        raise ValueError(f"invalid number of shards: expected 1 to {MOST_SHARDS}, got {shards}")
    if not 1 <= replicas <= MOST_REPLICAS:
        raise ValueError(f"invalid number of replicas: expected 1 to {MOST_REPLICAS}, got {replicas}")
    value = ClusterValue(secrets.token_hex(8), shards, replicas, replicas // 2 + 1)
    outcome = await etcd.put(keys.cluster, value.encode(), revision=0)
    if not outcome.is_done:
        raise ClusterExists(f"there is a cluster {keys.name!r} in etcd already")
    return value


async def make_log(etcd: Coordinator, keys: ClusterKeys, name: str) -> bool:
    """Make a log in all shards; return False if there is one. Raises InvalidName, WrongCluster, EtcdUnavailable."""
    check_log_name(name)
    cluster_of((await etcd.read(keys.cluster)).pairs, keys)
    return (await etcd.put(keys.log(name), b'{"version": 1}', revision=0)).is_done


async def cluster_status(etcd: Coordinator, keys: ClusterKeys) -> ClusterStatus:
    """Return what etcd has of a cluster. Raises WrongCluster, UndecodableValue, EtcdUnavailable."""
    pairs = (await etcd.read(keys.prefix)).pairs
    cluster = cluster_of(pairs, keys)
    runs: dict[str, int] = {}
    nodes: list[NodeStatus] = []
    for node, pair in sorted(below(pairs, keys.node("")).items()):
        value = NodeValue.decode(pair.value)
        nodes.append(NodeStatus(node, value.name, value.peer, pair.created))
        runs[node] = pair.created
    shards = []
    for number in range(cluster.shards):
        found = pairs.get(keys.shard(number))
        if found is None:
            is_lost = keys.placed(number) in pairs
            shards.append(ShardStatus(number, 0, None, (), (), (), is_led=False, is_lost=is_lost))
            continue
        record = ShardRecord.decode(found.value)
        is_led = record.leader is not None and runs.get(node_of(record.leader)) == record.run
        in_sync = tuple(sorted(map(node_of, record.isr)))
        nodes_of = in_sync, record.replicas, record.adding
        shards.append(ShardStatus(number, record.generation, record.leader, *nodes_of, is_led=is_led))
    logs = tuple(sorted(below(pairs, keys.log(""))))
    return ClusterStatus(cluster, logs, tuple(nodes), tuple(shards))


async def replace_node(
    etcd: Coordinator,
    keys: ClusterKeys,
    old: str,
    new: str,
    *,
    timeout_s: float,
    progress: Callable[[str], None],
) -> None:
    """Put a node in the place of another one, which may run or be lost, in all shards, one after another. Each shard
    has its replicas at all times: the new node is in sync before the old one leaves. May be repeated.

    old, new: ids, or names of registered nodes. timeout_s: for each shard. Raises ValueError for nodes that cannot be
    exchanged, TimeoutError with the shard as it was, WrongCluster, UndecodableValue, EtcdUnavailable."""
    found = await cluster_status(etcd, keys)
    leaves, comes = _id_of(found.nodes, old), _id_of(found.nodes, new)
    shards = [one for one in found.shards if leaves in one.replicas]
    if not shards:
        raise ValueError(f"invalid node {old}: expected one with a replica")
    if comes not in [one.id for one in found.nodes]:
        raise ValueError(f"invalid node {new}: expected a registered one")
    if both := [one.number for one in shards if comes in one.replicas]:
        raise ValueError(f"invalid node {new}: it has a replica of shard {both[0]} already")
    for shard in shards:
        try:
            async with asyncio.timeout(timeout_s):
                await _replace(etcd, keys, shard.number, leaves, comes, progress)
        finally:
            await _spare(etcd, keys, shard.number, comes)


async def _replace(
    etcd: Coordinator, keys: ClusterKeys, number: int, old: str, new: str, progress: Callable[[str], None]
) -> None:
    while True:
        pairs = (await etcd.read(keys.prefix)).pairs
        pair, node = pairs.get(keys.shard(number)), pairs.get(keys.node(new))
        record = ShardRecord.decode(pair.value) if pair is not None else None
        if pair is None or record is None or old not in record.replicas:
            return
        change, done, present = record.adds(new), "copies the records", None
        if new in record.adding:
            change, done = record.moved(new, old, cluster_of(pairs, keys).min_isr), "has taken the place"
        if record.leader is not None and node_of(record.leader) == old and node is not None:
            members = [one for one in record.isr if node_of(one) == new]
            if members:
                change, done = record.handed_over(members[0], node.created), "leads"
                present = keys.node(new), node.created
        if change is None:
            await asyncio.sleep(_PAUSE_S)
            continue
        outcome = await etcd.put(keys.shard(number), change.encode(), revision=pair.revision, present=present)
        if outcome.is_done:
            progress(f"shard {number}: {new} {done}")


async def _spare(etcd: Coordinator, keys: ClusterKeys, number: int, node: str) -> None:
    """Leave out a node that has not caught up in time."""
    with suppress(EtcdUnavailable):
        pair = (await etcd.read(keys.shard(number))).pairs.get(keys.shard(number))
        change = ShardRecord.decode(pair.value).spared(node) if pair is not None else None
        if pair is not None and change is not None:
            await etcd.put(keys.shard(number), change.encode(), revision=pair.revision)


def _id_of(nodes: Sequence[NodeStatus], wanted: str) -> str:
    """Return the id of a node by its id or its name."""
    named = [one.id for one in nodes if one.name == wanted]
    if len(named) > 1:
        raise ValueError(f"invalid node {wanted}: {len(named)} have this name; give the id")
    return named[0] if named else wanted
