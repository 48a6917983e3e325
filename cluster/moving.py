"""Moving replicas and leaders between nodes, in etcd, while the nodes run."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from timestone_cluster.errors import EtcdUnavailable
from timestone_cluster.etcd.client import Coordinator
from timestone_cluster.etcd.keys import ClusterKeys
from timestone_cluster.etcd.registry import below, cluster_of
from timestone_cluster.operations import ClusterStatus, NodeStatus, cluster_status
from timestone_cluster.shard_record import ShardRecord, node_of

_PAUSE_S = 0.5


async def replace_node(
    etcd: Coordinator,
    keys: ClusterKeys,
    old: str,
    new: str,
    *,
    only: int | None = None,
    timeout_s: float,
    progress: Callable[[str], None],
) -> None:
    """Put a node in the place of another one, which may run or be lost, in all shards, one after another. Each shard
    has its replicas at all times: the new node is in sync before the old one leaves. May be repeated.

    old, new: ids, or names of registered nodes. only: one shard. timeout_s: for each shard. Raises ValueError for nodes
    that cannot be exchanged, TimeoutError with the shard as it was, WrongCluster, UndecodableValue, EtcdUnavailable."""
    found = await cluster_status(etcd, keys)
    leaves, comes = _id_of(found.nodes, old), _id_of(found.nodes, new)
    shards = [one for one in found.shards if leaves in one.replicas and only in (None, one.number)]
    if not shards:
        where = "" if only is None else f" of shard {only}"
        raise ValueError(f"invalid node {old}: expected one with a replica{where}")
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
        pairs = (await etcd.read(keys.prefix)).pairs
        pair, minimum = pairs.get(keys.shard(number)), cluster_of(pairs, keys).min_isr
        change = ShardRecord.decode(pair.value).spared(node, minimum) if pair is not None else None
        if pair is not None and change is not None:
            await etcd.put(keys.shard(number), change.encode(), revision=pair.revision)


async def drain_node(
    etcd: Coordinator, keys: ClusterKeys, node: str, *, timeout_s: float, progress: Callable[[str], None]
) -> None:
    """Have a node give away what it leads, and lead nothing from now on while others may; return once it can stop
    without a shard losing its leader or its minimum of in-sync replicas. May be repeated.

    node: id, or name of a registered node. Raises ValueError for no such node, TimeoutError: it is drained still;
    WrongCluster, UndecodableValue, EtcdUnavailable."""
    found = await cluster_status(etcd, keys)
    drained = _id_of(found.nodes, node)
    if drained not in [one.id for one in found.nodes]:
        raise ValueError(f"invalid node {node}: expected a registered one")
    name = next(one.name for one in found.nodes if one.id == drained)
    await etcd.put(keys.draining(drained), name.encode())
    told = ""
    async with asyncio.timeout(timeout_s):
        while waits := _waits(found := await cluster_status(etcd, keys), drained):
            if waits != told:
                progress(waits)
            told = waits
            await asyncio.sleep(_PAUSE_S)
    progress(f"{node} leads no shard and may be stopped")


async def undrain_node(etcd: Coordinator, keys: ClusterKeys, node: str) -> None:
    """Let a node lead again, whether it runs yet or not. node: its id or name. Raises ValueError for one that is not
    drained, WrongCluster, UndecodableValue, EtcdUnavailable."""
    pairs = (await etcd.read(keys.prefix)).pairs
    cluster_of(pairs, keys)
    drained = below(pairs, keys.draining(""))
    found = [one for one, pair in drained.items() if node in (one, pair.value.decode(errors="replace"))]
    if not found:
        raise ValueError(f"invalid node {node}: it is not drained")
    for one in found:
        await etcd.delete(keys.draining(one))


def _waits(found: ClusterStatus, node: str) -> str:
    """Return why a node cannot stop yet; empty if it can."""
    for shard in found.shards:
        if shard.leader is not None and node_of(shard.leader) == node:
            return f"shard {shard.number}: it leads"
        left = [one for one in shard.in_sync if one != node]
        if node in shard.in_sync and len(left) < found.cluster.min_isr:
            return f"shard {shard.number}: {len(left)} others are in sync, {found.cluster.min_isr} have to be"
    return ""


def _id_of(nodes: Sequence[NodeStatus], wanted: str) -> str:
    """Return the id of a node by its id or its name."""
    named = [one.id for one in nodes if one.name == wanted]
    if len(named) > 1:
        raise ValueError(f"invalid node {wanted}: {len(named)} have this name; give the id")
    return named[0] if named else wanted
