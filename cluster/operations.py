"""What an operator does with a cluster in etcd: make it, make a log, look at it."""

import secrets
from typing import NamedTuple

from timestone_cluster.errors import ClusterExists
from timestone_cluster.etcd.client import Coordinator
from timestone_cluster.etcd.keys import MOST_SHARDS, ClusterKeys, ClusterValue, NodeValue, check_log_name
from timestone_cluster.etcd.registry import below, cluster_of
from timestone_cluster.shard_record import MOST_REPLICAS, ShardRecord, node_of


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
    is_led: bool
    """Whether its leader is registered."""


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
            shards.append(ShardStatus(number, 0, None, (), (), is_led=False))
            continue
        record = ShardRecord.decode(found.value)
        is_led = record.leader is not None and runs.get(node_of(record.leader)) == record.run
        in_sync = tuple(sorted(map(node_of, record.isr)))
        shards.append(
            ShardStatus(number, record.generation, record.leader, in_sync, record.replicas, is_led=is_led)
        )
    logs = tuple(sorted(below(pairs, keys.log(""))))
    return ClusterStatus(cluster, logs, tuple(nodes), tuple(shards))
