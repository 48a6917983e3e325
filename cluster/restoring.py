"""A cluster made again from a bucket, after the disks of all its nodes are lost, and perhaps etcd.

One node gets a folder with all that was uploaded, and is alone in sync in a record of each shard that begins above
every generation of the bucket. The others begin empty, and copy it: nothing is served before enough of them have. Ids
of logs are made of the cluster's id, so it is kept, and with it the place of the logs in the bucket."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from timestone.config import LogConfig
from timestone.disk.files import Files
from timestone.replication.replicated_segments import GENERATION_SHIFT
from timestone_cluster.errors import ClusterExists, WrongCluster
from timestone_cluster.etcd.client import Coordinator, KeyValue
from timestone_cluster.etcd.keys import LOG_SETTINGS, ClusterKeys, ClusterValue, LogValue
from timestone_cluster.etcd.registry import below
from timestone_cluster.node.replica_folder import IDENTITY_NAME, identity, replica_id
from timestone_cluster.recovery import GENERATIONS_AHEAD
from timestone_cluster.shard_record import MOST_GENERATION, ShardRecord, Unclean
from timestone_tiering.buckets.bucket import Bucket
from timestone_tiering.errors import ObjectMissing
from timestone_tiering.objects.history import LogHistory, log_histories
from timestone_tiering.objects.layout import CLUSTER
from timestone_tiering.operations.download import DownloadedLog, Progress
from timestone_tiering.operations.restore import restore_store


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
    value = await asyncio.to_thread(_cluster, bucket, pairs.get(keys.cluster))
    histories = await asyncio.to_thread(log_histories, bucket)
    for place in (one.manifest.place for one in histories):
        if place.log_id != replica_id(value.id, place.log, place.partition):
            raise WrongCluster(f"{bucket.url}: {place.prefix} is not of the cluster {value.id}")
    logs: Sequence[DownloadedLog] = ()
    if not (folder / IDENTITY_NAME).exists():
        logs = await asyncio.to_thread(restore_store, bucket, folder, for_cluster=True, progress=progress)
    node = await asyncio.to_thread(identity, Files(), folder, value.id)
    records = _records(value, pairs, keys, histories, node)
    if keys.cluster not in pairs:
        await etcd.put(keys.cluster, value.encode(), revision=0)
    for name, log in _logs(histories).items():
        await etcd.put(keys.log(name), log.encode(), revision=0)
    kept = {keys.cluster, *map(keys.shard, records), *map(keys.placed, records)}
    for key in pairs:
        if key not in kept and not key.startswith(keys.log("")):
            await etcd.delete(key)  # of nodes that are lost
    for number, record in records.items():
        key = keys.shard(number)
        revision = pairs[key].revision if key in pairs else 0
        outcome = await etcd.put(key, record.encode(), revision=revision, also=keys.placed(number))
        if not outcome.is_done:
            raise ClusterExists(f"shard {number} has changed since it was read: repeat the command")
    return RestoredCluster(value, node, logs, next(iter(records.values())).generation)


def _cluster(bucket: Bucket, pair: KeyValue | None) -> ClusterValue:
    """Return the cluster that etcd has, or that its nodes have noted in the bucket."""
    if pair is not None:
        return ClusterValue.decode(pair.value)
    try:
        return ClusterValue.decode(bucket.read(CLUSTER))
    except ObjectMissing:
        raise WrongCluster(
            f"{bucket.url} has no {CLUSTER}: nodes of this version note there which cluster uploads"
        ) from None


def _logs(histories: Sequence[LogHistory]) -> Mapping[str, LogValue]:
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


def _records(
    value: ClusterValue,
    pairs: Mapping[str, KeyValue],
    keys: ClusterKeys,
    histories: Sequence[LogHistory],
    node: str,
) -> Mapping[int, ShardRecord]:
    """Return the record of each shard: one node is in sync, and what was not uploaded is given up."""
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
    generation = min(max(known) + GENERATIONS_AHEAD, MOST_GENERATION)
    ends = {(one.manifest.place.partition, one.manifest.place.log): one.manifest.end for one in histories}
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
                *(Unclean(generation + 1, name, ends.get((number, name), 0)) for name in sorted(names)),
            ),
        )
        for number in range(value.shards)
    }


def _numbered(pairs: Mapping[str, KeyValue], keys: ClusterKeys) -> Mapping[int, KeyValue]:
    return {int(number): pair for number, pair in below(pairs, keys.prefix + "shards/").items()}
