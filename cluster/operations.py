"""What an operator does with a cluster in etcd: make it, make a log, look at it. Moving replicas is in `moving`."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from timestone.config import Ack
from timestone_cluster.division import MOST_TEMPLATES, check_template
from timestone_cluster.errors import ClusterExists
from timestone_cluster.etcd.client import Coordinator, KeyValue
from timestone_cluster.etcd.keys import (
    DELETIONS_LEVEL,
    LEVELS,
    MOST_SHARDS,
    SERVER_LOGS,
    ClusterKeys,
    ClusterValue,
    LogValue,
    NodeValue,
    check_ack,
    check_log_name,
    decode_deletions,
    encode_deletions,
)
from timestone_cluster.etcd.registry import below, cluster_of
from timestone_cluster.shard_record import MOST_REPLICAS, ShardRecord, Unclean, node_of

_NO_SETTINGS: Mapping[str, Any] = {}


class NodeStatus(NamedTuple):
    """A node."""

    id: str
    name: str
    address: str
    run: int
    """0 for one that is not registered."""
    is_draining: bool = False
    """Whether it gives its leaders away, by `drain_node`."""
    is_leaving: bool = False
    """Whether its replicas are placed elsewhere, by `remove_node`."""
    zone: str = ""
    weight: int = 1
    levels: tuple[int, int] = (1, 1)
    """Lowest and highest level of the protocol that it speaks."""
    is_full: bool = False
    """Whether its disk has too little free space for it to lead."""
    observes: bool = False
    """Whether it follows the shards in which it has no place."""
    is_behind: bool = False
    """Whether it lacks records of some shard since its start."""
    alarm: str = ""
    """Why replicas of it stay out, for people; empty while none does."""
    is_stopping: bool = False
    """Whether it is about to end."""


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
    unclean: tuple[Unclean, ...] = ()
    """Elections by command of a replica that may lack committed records, the first one first."""
    is_pinned: bool = False
    """Whether a command has placed it: see `move_shard`."""
    is_short: bool = False
    """Whether fewer of its in-sync replicas run than the minimum, so that appends wait."""


class ClusterStatus(NamedTuple):
    """A cluster as etcd has it."""

    cluster: ClusterValue
    logs: tuple[str, ...]
    nodes: tuple[NodeStatus, ...]
    """The registered ones."""
    shards: tuple[ShardStatus, ...]
    away: tuple[NodeStatus, ...] = ()
    """Nodes that are not registered, and hold replicas."""

    def node(self, wanted: str, *, is_running: bool = False) -> str:
        """Return the id of a node by its id or its name. is_running: look for the name among registered ones only.
        Raises ValueError for a name that several have."""
        named = [one.id for one in (*self.nodes, *(() if is_running else self.away)) if one.name == wanted]
        if len(named) > 1:
            raise ValueError(f"invalid node {wanted}: {len(named)} have this name; give the id")
        return named[0] if named else wanted


async def make_cluster(
    etcd: Coordinator,
    keys: ClusterKeys,
    *,
    shards: int,
    replicas: int,
    topic_keys: Sequence[str] = (),
    ack: str = Ack.SYNCED,
) -> ClusterValue:
    """Make a cluster, whose numbers, templates of `division` and ack level cannot change later. Raises ValueError,
    ClusterExists, EtcdUnavailable."""
    if not 1 <= shards <= MOST_SHARDS:
        raise ValueError(f"invalid number of shards: expected 1 to {MOST_SHARDS}, got {shards}")
    if not 1 <= replicas <= MOST_REPLICAS:
        raise ValueError(f"invalid number of replicas: expected 1 to {MOST_REPLICAS}, got {replicas}")
    if len(topic_keys) > MOST_TEMPLATES:
        raise ValueError(f"invalid keys: expected up to {MOST_TEMPLATES}, got {len(topic_keys)}")
    templates = tuple(map(check_template, topic_keys))
    value = ClusterValue(
        secrets.token_hex(8),
        shards,
        replicas,
        replicas // 2 + 1,
        LEVELS[1],
        topic_keys=templates,
        ack=check_ack(ack),
    )
    outcome = await etcd.put(keys.cluster, value.encode(), revision=0)
    if not outcome.is_done:
        raise ClusterExists(f"there is a cluster {keys.name!r} in etcd already")
    return value


async def configure_cluster(
    etcd: Coordinator, keys: ClusterKeys, settings: Mapping[str, Any] = _NO_SETTINGS
) -> ClusterValue:
    """Change settings of a cluster, of CLUSTER_SETTINGS by name, and return what it has. Nodes apply them in moments.

    Raises ValueError for an invalid one, WrongCluster, UndecodableValue, EtcdUnavailable."""
    while True:
        pairs = (await etcd.read(keys.cluster)).pairs
        value = cluster_of(pairs, keys).changed(settings)
        revision = pairs[keys.cluster].revision
        if not settings or (await etcd.put(keys.cluster, value.encode(), revision=revision)).is_done:
            return value


async def finalize_cluster(etcd: Coordinator, keys: ClusterKeys) -> ClusterValue:
    """Raise the level of the protocol to the highest that all nodes speak; older versions cannot join after that.

    Raises ValueError while a node that holds replicas is away, WrongCluster, UndecodableValue, EtcdUnavailable."""
    while True:
        found = await cluster_status(etcd, keys)
        pairs = (await etcd.read(keys.cluster)).pairs
        running = {one.id for one in found.nodes}
        holding = sorted({node for shard in found.shards for node in (*shard.replicas, *shard.adding)})
        if away := [node for node in holding if node not in running]:
            names = {one.id: one.name for one in found.away}
            shown = ", ".join(names.get(node, node) for node in away)
            raise ValueError(
                f"invalid time for a new level: expected all nodes to run, and these are away: {shown}"
            )
        value = cluster_of(pairs, keys)
        level = max(value.level, min((one.levels[1] for one in found.nodes), default=0))
        if level == value.level:
            return value
        value = replace(value, level=level)
        if (await etcd.put(keys.cluster, value.encode(), revision=pairs[keys.cluster].revision)).is_done:
            return value


async def make_log(
    etcd: Coordinator, keys: ClusterKeys, name: str, settings: Mapping[str, Any] = _NO_SETTINGS
) -> bool:
    """Make a log in all shards; return False if there is one. settings: by name, of LOG_SETTINGS.

    Raises InvalidName, ValueError or TypeError for a setting, WrongCluster, EtcdUnavailable."""
    check_log_name(name)
    value = LogValue().changed(settings)
    cluster_of((await etcd.read(keys.cluster)).pairs, keys)
    return (await etcd.put(keys.log(name), value.encode(), revision=0)).is_done


async def configure_log(
    etcd: Coordinator, keys: ClusterKeys, name: str, settings: Mapping[str, Any]
) -> LogValue:
    """Change settings of a log, and return all that are set. Nodes apply them within moments.

    Raises ValueError or TypeError for no such log or setting, WrongCluster, UndecodableValue, EtcdUnavailable."""
    while True:
        pairs = (await etcd.read(keys.prefix)).pairs
        cluster_of(pairs, keys)
        pair = pairs.get(keys.log(name))
        if pair is None:
            raise ValueError(f"invalid log {name!r}: the cluster has {shown_logs(pairs, keys)}")
        value = LogValue.decode(pair.value).changed(settings)
        if (await etcd.put(keys.log(name), value.encode(), revision=pair.revision)).is_done:
            return value


async def delete_log(etcd: Coordinator, keys: ClusterKeys, name: str, created: int | None = None) -> None:
    """Delete a log in all shards, with its settings: one transaction, after which it does not come back. Nodes delete
    what they have of it within moments, and those that are away when they start. created: revision at which the log was
    made, if the caller has decided about that one.

    Raises ValueError for no such log, one of the server's own, or a cluster that has not been finalized; WrongCluster,
    UndecodableValue, EtcdUnavailable: it may be deleted then."""
    while True:
        pairs = (await etcd.read(keys.prefix)).pairs
        pair = log_to_delete(pairs, keys, name)
        if created not in (None, pair.created):
            raise ValueError(f"invalid log {name!r}: another one was made under this name since")
        found = pairs.get(keys.deleted(name))
        before = found.value if found is not None else encode_deletions(0)
        created = pair.created
        value = encode_deletions(decode_deletions(before) + 1, before)
        instead = pair.key, pair.revision
        if (await etcd.put(keys.deleted(name), value, instead=instead)).is_done:
            return


def log_to_delete(pairs: Mapping[str, KeyValue], keys: ClusterKeys, name: str) -> KeyValue:
    """Return the key of a log that may be deleted. Raises ValueError, WrongCluster, UndecodableValue."""
    cluster, pair = cluster_of(pairs, keys), pairs.get(keys.log(name))
    if name in SERVER_LOGS:
        raise ValueError(f"invalid log {name!r}: it is the server's own")
    if pair is None:
        raise ValueError(f"invalid log {name!r}: the cluster has {shown_logs(pairs, keys)}")
    if cluster.level < DELETIONS_LEVEL:
        raise ValueError(
            f"cannot delete log {name}: the cluster is at level {cluster.level} of the protocol, and this takes level "
            f"{DELETIONS_LEVEL}; upgrade all nodes, then `timestone cluster finalize`"
        )
    return pair


def shown_logs(pairs: Mapping[str, KeyValue], keys: ClusterKeys) -> str:
    """Return the names of the logs of a cluster for people."""
    return ", ".join(sorted(below(pairs, keys.log("")))) or "none"


async def cluster_status(etcd: Coordinator, keys: ClusterKeys) -> ClusterStatus:
    """Return what etcd has of a cluster. Raises WrongCluster, UndecodableValue, EtcdUnavailable."""
    pairs = (await etcd.read(keys.prefix)).pairs
    cluster = cluster_of(pairs, keys)
    runs = {node: pair.created for node, pair in below(pairs, keys.node("")).items()}
    shards = []
    for number in range(cluster.shards):
        found = pairs.get(keys.shard(number))
        if found is None:
            is_lost = keys.placed(number) in pairs
            shards.append(ShardStatus(number, 0, None, (), (), (), is_led=False, is_lost=is_lost))
            continue
        record = ShardRecord.decode(found.value)
        is_led = record.leader is not None and runs.get(node_of(record.leader)) == record.run
        in_sync = tuple(sorted(set(map(node_of, record.isr))))
        nodes_of = in_sync, record.replicas, record.adding
        leader = None if record.leader is None else node_of(record.leader)
        shard = ShardStatus(number, record.generation, leader, *nodes_of, is_led=is_led)
        is_pinned, is_short = keys.pinned(number) in pairs, len(runs.keys() & {*in_sync}) < cluster.min_isr
        shards.append(shard._replace(unclean=record.unclean, is_pinned=is_pinned, is_short=is_short))
    nodes = [_node_status(pairs, keys, node, run) for node, run in sorted(runs.items())]
    absent = {node for shard in shards for node in (*shard.replicas, *shard.adding)} - runs.keys()
    away = [_node_status(pairs, keys, node, 0) for node in sorted(absent) if keys.member(node) in pairs]
    logs = tuple(sorted(below(pairs, keys.log(""))))
    return ClusterStatus(cluster, logs, tuple(nodes), tuple(shards), tuple(away))


def _node_status(pairs: Mapping[str, KeyValue], keys: ClusterKeys, node: str, run: int) -> NodeStatus:
    value = NodeValue.decode(pairs[keys.node(node) if run else keys.member(node)].value)
    states = keys.draining(node) in pairs, keys.leaving(node) in pairs
    levels = value.lowest_level, value.highest_level
    found = NodeStatus(node, value.name, value.peer, run, *states, value.zone, value.weight, levels)
    found = found._replace(observes=value.observes)
    if not run:  # the others are of a node that runs
        return found
    return found._replace(
        is_full=value.is_full, is_behind=value.is_behind, alarm=value.alarm, is_stopping=value.is_stopping
    )
