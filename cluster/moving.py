"""Moving replicas and leaders between nodes, in etcd, while the nodes run."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext, suppress

from timestone_cluster.errors import EtcdUnavailable, NodeLeft
from timestone_cluster.etcd.client import Coordinator
from timestone_cluster.etcd.keys import ClusterKeys, encode_pin
from timestone_cluster.etcd.registry import below, check_shard, cluster_of
from timestone_cluster.operations import ClusterStatus, cluster_status
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
    has its replicas at all times: the new node is in sync before the old one leaves. May be repeated, also after it has
    succeeded.

    old, new: ids, or names of registered nodes. only: one shard. timeout_s: for each shard. Raises ValueError for nodes
    that cannot be exchanged, WrongCluster, UndecodableValue, EtcdUnavailable; NodeLeft for the new one, or TimeoutError
    with what was waited for: that shard is as it was."""
    found = await cluster_status(etcd, keys)
    if only is not None:
        check_shard(only, len(found.shards))
    leaves, comes = found.node(old), found.node(new, is_running=True)
    asked = [one for one in found.shards if only in (None, one.number)]
    shards = [one for one in asked if leaves in one.replicas]
    if not shards:
        where = "" if only is None else f" of shard {only}"
        if any(comes in one.replicas for one in asked):
            return progress(f"{old} has no replica{where}: nothing is left to do")
        raise ValueError(f"invalid node {old}: expected one with a replica{where}")
    taker = next((one for one in found.nodes if one.id == comes), None)
    if taker is None:
        raise ValueError(f"invalid node {new}: expected a registered one")
    if taker.is_leaving:  # nodes would give away what this puts there, again and again
        raise ValueError(
            f"invalid node {new}: it was removed or replaced; `timestone cluster remove --undo` first"
        )
    if both := [one.number for one in shards if comes in one.replicas]:
        raise ValueError(f"invalid node {new}: it has a replica of shard {both[0]} already")
    leaving = _kept(etcd, keys.leaving(leaves), old.encode()) if only is None else nullcontext()
    async with leaving:
        for shard in shards:
            pin = encode_pin(tuple(comes if node == leaves else node for node in shard.replicas))
            try:
                async with _kept(etcd, keys.pinned(shard.number), pin):  # so that the balancer wants the same
                    await _replace(etcd, keys, shard.number, leaves, comes, taker.name, timeout_s, progress)
            finally:
                await _spare(etcd, keys, shard.number, comes)


@asynccontextmanager
async def _kept(etcd: Coordinator, key: str, value: bytes) -> AsyncIterator[None]:
    """Put a value, and put back what was there before if the block fails."""
    before = (await etcd.read(key)).pairs.get(key)
    await etcd.put(key, value)
    try:
        yield
    except BaseException:
        with suppress(EtcdUnavailable):
            if before is None:
                await etcd.delete(key)
            else:
                await etcd.put(key, before.value)
        raise


async def unpin_shard(etcd: Coordinator, keys: ClusterKeys, number: int) -> None:
    """Have a shard that was moved by command placed by the nodes again. Raises ValueError for one that was not,
    WrongCluster, UndecodableValue, EtcdUnavailable."""
    pairs = (await etcd.read(keys.prefix)).pairs
    check_shard(number, cluster_of(pairs, keys).shards)
    if keys.pinned(number) not in pairs:
        raise ValueError(f"invalid shard {number}: no command has placed it")
    await etcd.delete(keys.pinned(number))


async def _replace(
    etcd: Coordinator,
    keys: ClusterKeys,
    number: int,
    old: str,
    new: str,
    name: str,
    timeout_s: float,
    progress: Callable[[str], None],
) -> None:
    """Replace a node in one shard. old, new: ids. name: of the new one."""

    async def step() -> str:
        """Make the next change that can be made, and return what has to happen before another one can."""
        while True:
            pairs = (await etcd.read(keys.prefix)).pairs
            pair = pairs.get(keys.shard(number))
            record = ShardRecord.decode(pair.value) if pair is not None else None
            if pair is None or record is None or old not in record.replicas:
                if record is not None and new in record.replicas:  # by this command, or by the balancer
                    progress(f"shard {number}: {name} has taken the place")
                return ""
            if keys.node(new) not in pairs:
                raise NodeLeft(f"node {name} has left before it was in sync in shard {number}")
            change, begins = record.adds(new), new not in record.adding
            if not begins:
                change = record.moved(new, old, cluster_of(pairs, keys).min_isr)
            waits = f"shard {number}: {name} is not in sync"
            if node_of(record.leader or "") == old and new in map(node_of, record.isr):
                change, waits = None, f"shard {number}: the node that leaves leads it"
                if keys.wanted(number) not in pairs:  # it hands over once nothing waits
                    await etcd.put(keys.wanted(number), new.encode())
            elif record.leader is None or keys.node(node_of(record.leader)) not in pairs:
                waits = f"shard {number}: it has no leader"
            elif dict(record.left).get(new) == record.generation and keys.wanted(number) not in pairs:
                # It comes back in another generation only.
                others = [node for node in map(node_of, record.isr) if keys.node(node) in pairs]
                other = next((node for node in others if node != node_of(record.leader)), None)
                if other is not None:
                    await etcd.put(keys.wanted(number), other.encode())
            if change is None:
                return waits
            outcome = await etcd.put(keys.shard(number), change.encode(), revision=pair.revision)
            if outcome.is_done and begins:
                progress(f"shard {number}: {name} copies the records")

    await _until_done(step, timeout_s)


async def _until_done(
    step: Callable[[], Awaitable[str]], timeout_s: float, progress: Callable[[str], None] = lambda line: None
) -> None:
    """Wait until a step returns nothing that it waits for. Raises TimeoutError with what it has waited for last."""
    waits = ""
    try:
        async with asyncio.timeout(timeout_s):
            while found := await step():
                if found != waits:
                    progress(found)
                waits = found
                await asyncio.sleep(_PAUSE_S)
    except TimeoutError:
        raise TimeoutError(waits or "etcd has not answered") from None


async def _spare(etcd: Coordinator, keys: ClusterKeys, number: int, node: str) -> None:
    """Leave out a node that has not caught up in time, and have no leader hand over to it."""
    with suppress(EtcdUnavailable):
        await etcd.delete(keys.wanted(number))
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

    node: id, or name of a registered node. Raises ValueError for no such node; TimeoutError, or NodeLeft if it leaves
    too early, with what was waited for: it is drained still; WrongCluster, UndecodableValue, EtcdUnavailable."""
    found = await cluster_status(etcd, keys)
    drained = found.node(node, is_running=True)
    if drained not in [one.id for one in found.nodes]:
        raise ValueError(f"invalid node {node}: expected a registered one")
    name = next(one.name for one in found.nodes if one.id == drained)
    await etcd.put(keys.draining(drained), name.encode())

    async def step() -> str:
        now = await cluster_status(etcd, keys)
        waits = _waits(now, drained)
        if waits and drained not in [one.id for one in now.nodes]:
            raise NodeLeft(f"node {name} has left before it could be stopped: {waits}")
        return waits

    await _until_done(step, timeout_s, progress)
    progress(f"{node} leads no shard and may be stopped")


async def remove_node(
    etcd: Coordinator, keys: ClusterKeys, node: str, *, timeout_s: float, progress: Callable[[str], None]
) -> None:
    """Have all replicas of a node placed elsewhere, for good, and return once it holds nothing. May be repeated.

    node: id or name, of one that runs or is lost. Raises ValueError for no such node, or if the others are too few or
    the balancer is off; TimeoutError with what was waited for: it is still leaving; WrongCluster, UndecodableValue,
    EtcdUnavailable."""
    found = await cluster_status(etcd, keys)
    leaving = found.node(node)
    known = {one.id: one for one in (*found.nodes, *found.away)}
    if leaving not in known and not any(leaving in (*one.replicas, *one.adding) for one in found.shards):
        raise ValueError(f"invalid node {node}: expected one that runs or has a replica")
    if not found.cluster.balance:
        raise ValueError(
            f"cannot remove {node}: balance is off; `cluster replace` names the node that comes instead"
        )
    if lacks := _lacks(found, leaving):
        raise ValueError(f"cannot remove {node}: {lacks}")
    await etcd.put(keys.leaving(leaving), (known[leaving].name if leaving in known else leaving).encode())

    async def step() -> str:
        now = await cluster_status(etcd, keys)
        left = [one.number for one in now.shards if leaving in (*one.replicas, *one.adding)]
        if not left:
            return _gone(now)
        line = f"{node} holds {len(left)} shards" if len(left) > 1 else f"{node} holds shard {left[0]}"
        return "; ".join(filter(None, (line, _lacks(now, leaving))))

    await _until_done(step, timeout_s, progress)
    if leaving not in [one.id for one in found.nodes]:
        for key in (keys.member(leaving), keys.leaving(leaving), keys.draining(leaving)):
            await etcd.delete(key)
    progress(f"{node} holds no shard")


async def unremove_node(etcd: Coordinator, keys: ClusterKeys, node: str) -> None:
    """Have a node hold shards again. node: its id or name. Raises ValueError for one that is not leaving, WrongCluster,
    UndecodableValue, EtcdUnavailable."""
    await _take_away(etcd, keys, keys.leaving(""), node, "it is not removed")


async def undrain_node(etcd: Coordinator, keys: ClusterKeys, node: str) -> None:
    """Let a node lead again, whether it runs yet or not. node: its id or name. Raises ValueError for one that is not
    drained, WrongCluster, UndecodableValue, EtcdUnavailable."""
    await _take_away(etcd, keys, keys.draining(""), node, "it is not drained")


async def _take_away(etcd: Coordinator, keys: ClusterKeys, folder: str, node: str, refusal: str) -> None:
    """Remove the key of a node in a folder whose values are names."""
    pairs = (await etcd.read(keys.prefix)).pairs
    cluster_of(pairs, keys)
    marked = below(pairs, folder)
    found = [one for one, pair in marked.items() if node in (one, pair.value.decode(errors="replace"))]
    if not found:
        raise ValueError(f"invalid node {node}: {refusal}")
    for one in found:
        await etcd.delete(folder + one)


def _waits(found: ClusterStatus, node: str) -> str:
    """Return why a node cannot stop yet; empty if it can."""
    if gone := _gone(found):
        return gone
    for shard in found.shards:
        if shard.leader is not None and node_of(shard.leader) == node:
            return f"shard {shard.number}: it leads"
        left = [one for one in shard.in_sync if one != node]
        if node in shard.in_sync and len(left) < found.cluster.min_isr:
            return f"shard {shard.number}: others in sync: {len(left)} of at least {found.cluster.min_isr}"
    return ""


def _gone(found: ClusterStatus) -> str:
    """Return of which shard nothing is known, so that any node may hold or lead it; empty for none."""
    return next(
        (f"shard {one.number}: its record is gone from etcd" for one in found.shards if one.is_lost), ""
    )


def _lacks(found: ClusterStatus, leaving: str) -> str:
    """Return why the other nodes cannot hold all replicas of one that leaves; empty if they can."""
    others = [one.id for one in found.nodes if one.id != leaving and not one.is_leaving]
    replicas = found.cluster.replicas
    if len(others) >= replicas:
        return ""
    return f"each shard has {replicas} replicas, and {len(others)} other nodes run"
