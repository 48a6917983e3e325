"""Giving shards a leader again by command: after their in-sync replicas are lost, after etcd has lost a record, or
after the disks of all nodes are lost.

In the first two cases all registered nodes are asked what they have. `plan_*` says what would be done; `Plan.apply`
does it, in a transaction for each shard on what was read.

In the third, `restore_cluster` makes the cluster again from its bucket. One node gets a folder with all that was
uploaded, and is alone in sync in a record of each shard that begins above every generation of the bucket. The others
begin empty, and copy it: nothing is served before enough of them have. Ids of logs are made of the cluster's id, so it
is kept, and with it the place of the logs in the bucket."""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from timestone.address import parse_address
from timestone.config import Ack, LogConfig
from timestone.disk.files import Files
from timestone.replication.replicated_segments import GENERATION_SHIFT
from timestone_cluster.errors import ClusterError, ClusterExists, WrongCluster
from timestone_cluster.etcd.client import Coordinator, KeyValue
from timestone_cluster.etcd.keys import (
    LOG_SETTINGS,
    WRITTEN_LEVEL,
    ClusterKeys,
    ClusterValue,
    LogValue,
    NodeValue,
    counted_name,
    decode_deletions,
    deletions_before,
    encode_deletions,
)
from timestone_cluster.etcd.registry import below, check_shard, cluster_of
from timestone_cluster.node.held_shards import IDENTITY_NAME, identity
from timestone_cluster.operations import log_to_delete
from timestone_cluster.shard_record import MOST_GENERATION, ShardRecord, Unclean, member_of, node_of
from timestone_cluster.transport.wire import Describe, Described, Hello, LogState, encoded, read_message
from timestone_tiering.buckets.bucket import Bucket
from timestone_tiering.errors import ObjectMissing
from timestone_tiering.objects.history import LogHistory, log_histories
from timestone_tiering.objects.layout import CLUSTER, LogPlace
from timestone_tiering.operations.download import DownloadedLog, Progress
from timestone_tiering.operations.restore import restore_store

_ASK_S = 10.0
_GENERATIONS_AHEAD = 1000
"""So far above the highest known generation a repaired record is: a node that did not answer may know of a few more."""


class Report(NamedTuple):
    """What a registered node has of a shard."""

    node: str
    name: str
    run: int
    logs: tuple[LogState, ...]
    boot: str = ""

    @property
    def member(self) -> str:
        """Return what it is in the records of shards."""
        return member_of(self.node, self.boot)

    @property
    def is_whole(self) -> bool:
        """Return whether it may lead."""
        return not any(log.is_damaged for log in self.logs)

    def has(self, other: "Report") -> bool:
        """Return whether it has, of each log, at least what the other one has: a later generation, or as much of the
        same one."""
        own = {log.name: (log.last_generation, log.end) for log in self.logs}
        return all(own.get(log.name, (0, 0)) >= (log.last_generation, log.end) for log in other.logs)


@dataclass(frozen=True)
class Plan:
    """A change of one shard that an operator may want."""

    shard: int
    reports: tuple[Report, ...]
    chosen: Report
    record: ShardRecord
    revision: int
    """Of the record that it replaces; 0 for none."""

    async def apply(self, etcd: Coordinator, keys: ClusterKeys) -> bool:
        """Put the record, and return whether it took place: not if the shard has changed, or the chosen node was
        started again. Raises EtcdUnavailable."""
        present = keys.node(self.chosen.node), self.chosen.run
        key = keys.shard(self.shard)
        return (await etcd.put(key, self.record.encode(), revision=self.revision, present=present)).is_done


async def plan_recovery(
    etcd: Coordinator, keys: ClusterKeys, shard: int, *, node: str | None, context: ssl.SSLContext | None
) -> Plan:
    """Plan an election of a replica that is not in sync, or the only one in sync that is left. node: its name or id; by
    default the one with the most of those that are not damaged. Raises ValueError where nothing is to be recovered, or
    none can be chosen; WrongCluster, UndecodableValue, UndecodableShardRecord, EtcdUnavailable."""
    picture = await _picture(etcd, keys, context)
    check_shard(shard, picture.cluster.shards)
    record, revision = picture.record(shard)
    if record is None:
        raise ValueError(
            f"invalid shard {shard}: it has no record in etcd; see `timestone cluster repair-metadata`"
        )
    runs = {node: pair.created for node, pair in picture.nodes.items()}
    if record.leader is not None and runs.get(node_of(record.leader)) == record.run:
        leader = NodeValue.decode(picture.nodes[node_of(record.leader)].value).name
        raise ValueError(f"invalid shard {shard}: it has a leader, {leader}")
    reports = [one for one in picture.of_shard(shard) if one.node in record.replicas]
    if fit := [one.name for one in reports if one.is_whole and record.may_elect(one.member)]:
        raise ValueError(f"invalid shard {shard}: {fit[0]} is in sync and will lead by itself")
    wanted = [one for one in reports if node in (None, one.node, one.name)]
    if reports and not wanted:
        raise ValueError(f"invalid node {node}: expected one that answers and has a replica of shard {shard}")
    if (chosen := _best(wanted)) is None:
        raise ValueError(f"invalid shard {shard}: {_why_none(wanted)}")
    were_in_sync = [one for one in reports if one.node in map(node_of, record.isr)]
    lost = _given_up(record.generation + 1, chosen, were_in_sync, picture.cluster, picture.deletions)
    found = record.recovered(chosen.member, chosen.run, lost)
    if found is None:
        raise ValueError(f"invalid shard {shard}: {chosen.name} has no log of it")
    return Plan(shard, tuple(reports), chosen, found, revision)


async def plan_repair(
    etcd: Coordinator, keys: ClusterKeys, *, context: ssl.SSLContext | None
) -> tuple[list[Plan], list[str]]:
    """Plan new records for the shards whose record in etcd is gone, or older than what the nodes have. Also returns why
    some of them cannot be repaired yet. Raises as `plan_recovery`."""
    picture = await _picture(etcd, keys, context)
    cluster, plans, refused = picture.cluster, list[Plan](), list[str]()
    for number in range(cluster.shards):
        reports = picture.of_shard(number)
        record, revision = picture.record(number)
        known = max((log.generation for one in reports for log in one.logs), default=0)
        is_gone = record is None and keys.placed(number) in picture.pairs
        if not is_gone and (record is None or record.generation >= known):
            continue
        # As many as meet each set of in-sync replicas that there can have been.
        needed = cluster.replicas - cluster.min_isr + 1
        if (count := sum(one.is_whole for one in reports)) < needed:
            refused.append(
                f"shard {number}: {count} of its replicas answer and are not damaged, {needed} have to"
            )
            continue
        if (chosen := _best(reports)) is None:
            refused.append(f"shard {number}: no replica has all that the others have of each log")
            continue
        nodes = [
            chosen.node,
            *(one.node for one in reports),
            *(record.replicas if record is not None else ()),
        ]
        generation = max(known, record.generation if record is not None else 0) + _GENERATIONS_AHEAD
        generation = min(generation, MOST_GENERATION)
        unclean = record.unclean if record is not None else ()
        if cluster.ack is Ack.WRITTEN:  # they may have been booted again since they were in sync
            unclean += _given_up(generation + 1, chosen, reports, cluster, picture.deletions)
        made = ShardRecord(
            generation,
            None,
            0,
            frozenset([chosen.member]),
            tuple(dict.fromkeys(nodes))[: cluster.replicas],
            unclean=unclean,
            others=record.others if record is not None else "",
        )
        plans.append(Plan(number, tuple(reports), chosen, made, revision))
    return plans, refused


def _given_up(
    generation: int,
    chosen: Report,
    reports: Sequence[Report],
    cluster: ClusterValue,
    deletions: Mapping[str, int],
) -> tuple[Unclean, ...]:
    """Return what is given up when a replica leads. New records begin behind all that nodes which were in sync may have
    shown; where none of those answers, nothing is known of that. deletions: of earlier logs by name."""
    states = [log for one in reports for log in one.logs] if cluster.level >= WRITTEN_LEVEL else []
    ceilings: dict[str, int] = {}
    for log in states:
        ceilings[log.name] = max(ceilings.get(log.name, 0), log.ceiling, log.end)
    return tuple(
        Unclean(
            generation,
            counted_name(log.name, deletions.get(log.name, 0)),
            log.end,
            max(ceilings[log.name], log.end) if log.name in ceilings else 0,
        )
        for log in chosen.logs
    )


class LogContents(NamedTuple):
    """Contents of a log of a cluster, as far as nodes answer."""

    created: int
    """Revision of etcd at which it was made."""
    shards: Mapping[int, tuple[int, int]]
    """Start and end of what is committed, by shard."""


async def log_contents(
    etcd: Coordinator, keys: ClusterKeys, name: str, *, context: ssl.SSLContext | None
) -> LogContents:
    """Ask all registered nodes what they have of a log that is to be deleted. Raises ValueError for one that cannot be,
    WrongCluster, UndecodableValue, EtcdUnavailable."""
    picture = await _picture(etcd, keys, context)
    pair = log_to_delete(picture.pairs, keys, name)
    found: dict[int, tuple[int, int]] = {}
    for log in (log for described in picture.told.values() for log in described.logs if log.name == name):
        known = found.get(log.shard, (0, 0))
        if log.committed >= known[1]:
            found[log.shard] = log.start, log.committed
    return LogContents(pair.created, dict(sorted(found.items())))


def _best(reports: Sequence[Report]) -> Report | None:
    """Return the report that has all that the others have, damaged ones left aside; None if none has it. One that is in
    sync before others: a leader may still commit, and all in sync have that as well."""
    whole = [one for one in reports if one.is_whole]
    found = [one for one in whole if all(one.has(other) for other in whole)]
    return max(found, key=lambda one: all(log.is_in_sync for log in one.logs), default=None)


def _why_none(reports: Sequence[Report]) -> str:
    """Return why none of these reports is the best."""
    if not reports:
        return "no replica of it answers: start its nodes first"
    if whole := ", ".join(one.name for one in reports if one.is_whole):
        return f"each of {whole} has more of another log: name one with --node"
    return f"what answers is damaged, and cannot lead: {', '.join(one.name for one in reports)}"


@dataclass(frozen=True)
class _Picture:
    """What etcd has, and what the nodes say."""

    keys: ClusterKeys
    cluster: ClusterValue
    pairs: Mapping[str, KeyValue]
    nodes: Mapping[str, KeyValue]
    told: Mapping[str, Described]

    @property
    def deletions(self) -> Mapping[str, int]:
        return _deletions_in(self.pairs, self.keys)

    def record(self, shard: int) -> tuple[ShardRecord | None, int]:
        pair = self.pairs.get(self.keys.shard(shard))
        return (None, 0) if pair is None else (ShardRecord.decode(pair.value), pair.revision)

    def of_shard(self, shard: int) -> list[Report]:
        reports = []
        for node, described in sorted(self.told.items()):
            logs = tuple(log for log in described.logs if log.shard == shard)
            if logs:
                pair = self.nodes[node]
                value = NodeValue.decode(pair.value)
                reports.append(Report(node, value.name, pair.created, logs, value.boot))
        return reports


async def _picture(etcd: Coordinator, keys: ClusterKeys, context: ssl.SSLContext | None) -> _Picture:
    pairs = (await etcd.read(keys.prefix)).pairs
    cluster = cluster_of(pairs, keys)
    nodes = below(pairs, keys.node(""))
    asked = [_asked(cluster.id, NodeValue.decode(pair.value), context) for pair in nodes.values()]
    answers = await asyncio.gather(*asked)
    told = {node: found for node, found in zip(nodes, answers, strict=True) if found is not None}
    return _Picture(keys, cluster, pairs, nodes, told)


async def _asked(cluster: str, value: NodeValue, context: ssl.SSLContext | None) -> Described | None:
    """Return what a node has; None if it does not answer."""
    host, port = parse_address(value.peer, setting="peer")
    try:
        async with asyncio.timeout(_ASK_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            try:
                writer.writelines([*encoded(Hello(cluster, "")), *encoded(Describe(0))])
                _, answer = await read_message(reader)
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError, asyncio.IncompleteReadError, ClusterError):
        return None
    return answer if isinstance(answer, Described) else None


# From a bucket.


class RestoredCluster(NamedTuple):
    """What was made of a bucket."""

    value: ClusterValue
    node: str
    """Id of the node whose folder has it all."""
    logs: Sequence[DownloadedLog]
    """Empty where an earlier call had finished the folder."""
    generation: int
    """Of all shards."""


async def restore_cluster(
    etcd: Coordinator,
    keys: ClusterKeys,
    bucket: Bucket,
    folder: Path,
    progress: Progress = lambda log, done, total: None,
) -> RestoredCluster:
    """Make the folder of a node, which must not exist or be empty, of all logs in a bucket, and put the cluster and its
    shards into etcd. Interrupted anywhere, the same call continues.

    Raises ClusterExists while nodes are registered, WrongCluster for a bucket of another one, NoHistory, and what
    `restore_store` does; UndecodableValue, UndecodableShardRecord, EtcdUnavailable."""
    pairs = (await etcd.read(keys.prefix)).pairs
    if running := below(pairs, keys.node("")):
        raise ClusterExists(f"nodes of the cluster {keys.name!r} run: {', '.join(running)}; stop them first")
    value = await asyncio.to_thread(_noted_cluster, bucket, pairs.get(keys.cluster))
    histories = await asyncio.to_thread(log_histories, bucket)
    deletions = _deletions_in(pairs, keys)
    counts = [(one, _deletions(bucket, value, one.manifest.place)) for one in histories]
    for one, count in counts:
        deletions[one.manifest.place.log] = max(count, deletions.get(one.manifest.place.log, 0))
    # Of partitions, some may have been uploaded before their log was deleted only.
    alive = [one for one, count in counts if count == deletions[one.manifest.place.log]]
    logs: Sequence[DownloadedLog] = ()
    if not (folder / IDENTITY_NAME).exists():
        logs = await asyncio.to_thread(restore_store, bucket, folder, for_cluster=True, progress=progress)
    node = await asyncio.to_thread(identity, Files(), folder, value.id)
    records = _restored_records(value, pairs, keys, histories, alive, deletions, node)
    if keys.cluster not in pairs:
        await etcd.put(keys.cluster, value.encode(), revision=0)
    for name, count in deletions.items():  # first: the node deletes what is older
        if count:
            before = pairs[keys.deleted(name)].value if keys.deleted(name) in pairs else b"{}"
            await etcd.put(keys.deleted(name), encode_deletions(count, before))
    for name, log in _restored_logs(alive).items():
        await etcd.put(keys.log(name), log.encode(), revision=0)
    kept = {keys.cluster, *map(keys.shard, records), *map(keys.placed, records)}
    for key in pairs:
        if key not in kept and not key.startswith((keys.log(""), keys.deleted(""))):
            await etcd.delete(key)  # of nodes that are lost
    for number, record in records.items():
        key = keys.shard(number)
        revision = pairs[key].revision if key in pairs else 0
        outcome = await etcd.put(key, record.encode(), revision=revision, also=keys.placed(number))
        if not outcome.is_done:
            raise ClusterExists(f"shard {number} has changed since it was read: repeat the command")
    return RestoredCluster(value, node, logs, next(iter(records.values())).generation)


def _noted_cluster(bucket: Bucket, pair: KeyValue | None) -> ClusterValue:
    """Return the cluster that etcd has, or that its nodes have noted in the bucket."""
    if pair is not None:
        return ClusterValue.decode(pair.value)
    try:
        return ClusterValue.decode(bucket.read(CLUSTER))
    except ObjectMissing:
        raise WrongCluster(
            f"{bucket.url} has no {CLUSTER}: nodes of this version note there which cluster uploads"
        ) from None


def _deletions_in(pairs: Mapping[str, KeyValue], keys: ClusterKeys) -> dict[str, int]:
    return {name: decode_deletions(pair.value) for name, pair in below(pairs, keys.deleted("")).items()}


def _deletions(bucket: Bucket, value: ClusterValue, place: LogPlace) -> int:
    """Return how many logs of its name were deleted before the one at a place of a bucket."""
    count = deletions_before(place.log_id, value.id, place.log, place.partition)
    if count is None:
        raise WrongCluster(f"{bucket.url}: {place.prefix} is not of the cluster {value.id}")
    return count


def _restored_logs(histories: Sequence[LogHistory]) -> Mapping[str, LogValue]:
    """Return the logs with the settings of their last upload, where they differ from the defaults."""
    default, found = LogConfig(), {}
    for one in histories:
        settings = one.manifest.settings
        changed = {
            name: settings[name]
            for name in LOG_SETTINGS
            if name in settings and settings[name] != getattr(default, name)
        }
        found[one.manifest.place.log] = LogValue().changed(changed)
    return found


def _restored_records(
    value: ClusterValue,
    pairs: Mapping[str, KeyValue],
    keys: ClusterKeys,
    histories: Sequence[LogHistory],
    alive: Sequence[LogHistory],
    deletions: Mapping[str, int],
    node: str,
) -> Mapping[int, ShardRecord]:
    """Return the record of each shard: one node is in sync, and what was not uploaded is given up. alive: histories of
    logs that are not deleted. deletions: of earlier ones by name."""
    old = {number: ShardRecord.decode(pair.value) for number, pair in _numbered(pairs, keys).items()}
    known = [
        *(one.manifest.version.generation for one in histories),
        *(
            (stored.epoch or 0) >> GENERATION_SHIFT
            for one in histories
            for stored in one.objects.segments(one.manifest)[-1:]
        ),
        *(record.generation for record in old.values()),
    ]
    generation = min(max(known) + _GENERATIONS_AHEAD, MOST_GENERATION)
    ends = {(one.manifest.place.partition, one.manifest.place.log): one.manifest.end for one in alive}
    names = {*below(pairs, keys.log("")), *(name for _, name in ends)}
    return {
        number: ShardRecord(
            generation,
            None,
            0,
            frozenset([node]),
            (node,),
            unclean=(
                *(old[number].unclean if number in old else ()),
                *(
                    Unclean(
                        generation + 1,
                        counted_name(name, deletions.get(name, 0)),
                        ends.get((number, name), 0),
                    )
                    for name in sorted(names)
                ),
            ),
            others=old[number].others if number in old else "",
        )
        for number in range(value.shards)
    }


def _numbered(pairs: Mapping[str, KeyValue], keys: ClusterKeys) -> Mapping[int, KeyValue]:
    return {int(number): pair for number, pair in below(pairs, keys.prefix + "shards/").items()}
