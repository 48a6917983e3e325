"""Shards of which a node holds replicas, opened and closed as the records in etcd say; and those that it observes.

A replica and what an observer has are the same files. Which of the two they are is noted in the catalogue, because an
observer promises nothing and nothing waits for it: what it may have missed goes before it becomes a replica."""

import asyncio
import json
import logging
import secrets
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from timestone.disk.files import Files
from timestone.disk.json_document import integer, json_object
from timestone.errors import InvalidName, TimestoneError, UnknownLog
from timestone.format.folder_listing import is_begun
from timestone.format.identity import LogIdentity
from timestone.format.names import DOUBT_NAME, TOPICS_NAME, log_folder
from timestone.format.topics import create_topics_file
from timestone.recovery.segment_report import State
from timestone.replication.replicated_log import ReplicatedLog
from timestone.store import Store
from timestone_cluster.errors import UndecodableShardRecord, UndecodableValue, WrongCluster
from timestone_cluster.etcd.client import KeyValue
from timestone_cluster.etcd.keys import (
    LOG_SETTINGS,
    ClusterValue,
    LogValue,
    check_log_name,
    decode_deletions,
    deletions_before,
    replica_id,
    replica_name,
)
from timestone_cluster.etcd.registry import Registry
from timestone_cluster.shard.shard import Shard
from timestone_cluster.shard.shipping import Surroundings, now_s
from timestone_cluster.shard_record import ShardRecord, node_of

IDENTITY_NAME = "NODE"
_LOGGER = logging.getLogger("timestone.cluster")
OBSERVED = "observed"
"""Namespace in the catalogue: one empty document for each shard that this node observes, by its number."""
WHOLE_S = 10.0
"""How long the others have to be whole before a node deletes what it had."""
_DAMAGE_S = 5.0
"""How often to ask what the scrubber has found."""
_DISCARD_S = 1.0
_ALARM_CHARACTERS = 200
"""Most of an alarm in etcd."""
_END_S = 1.0
"""Time for the front to end what reads the logs of a shard."""


class HeldShards:
    """Replicas of one node by the number of their shard. Event-loop thread only, but for `damaged`."""

    def __init__(
        self, store: Store, cluster: ClusterValue, member: str, around: Surroundings, *, has_front: bool
    ) -> None:
        """member: what this node is in the records. has_front: logs have to be those that a front knows again on
        another node."""
        self.shards: dict[int, Shard] = {}
        self.lost: set[int] = set()
        """Shards whose record is gone from etcd."""
        self.observes = False
        """Whether this node follows the shards in which it has no place."""
        self.observed = {int(number) for number in store.documents.items(OBSERVED)}
        """Shards of which it has files as an observer."""
        self._store, self._cluster, self._around = store, cluster, around
        self._member, self._node = member, node_of(member)
        self._has_front = has_front
        self._closing: set[int] = set()
        """Shards whose logs are being closed."""
        self._deleting: set[str] = set()
        """Folders of logs that are being deleted."""
        self._whole_s: dict[int, float] = {}
        """Since when other nodes have all of a shard that this one has left."""
        self._note_recovered()

    def take(
        self, number: int, pair: KeyValue | None, logs: Mapping[str, LogValue], run: int
    ) -> Coroutine[Any, Any, None] | None:
        """Take what etcd has of a shard that has had a record. Return what ends its replica, if it is to end.

        run: of this node. Raises TimestoneError and OSError if a log cannot be opened."""
        if pair is None:
            self._lose(number)
            return None
        self.lost.discard(number)
        try:
            record = ShardRecord.decode(pair.value)
        except UndecodableShardRecord as error:
            _LOGGER.error("shard %d: %s", number, error)
            return None
        if number in self._closing:
            return None  # until the next time
        if self._node in record.nodes or self.observes:
            if record.generation < self._generation(number, logs):
                pass  # of an etcd that was restored from the past: not what this node has become since
            elif self._node not in record.nodes:
                self._note_observed(number)
            elif number in self.observed:
                if outdated := self._compacted(number, logs):
                    self._closing.add(number)
                    return self._begin_anew(number, self.shards.pop(number, None), outdated)
                self._forget_observed(number)
            self._hold(number, logs, run)
            self.shards[number].record_seen(record, pair.revision)
        elif number in self.shards:
            _LOGGER.warning("shard %d: another node has this one's place", number)
            self._closing.add(number)
            return self._close(number, self.shards.pop(number))
        return None

    def delete(self, deleted: Mapping[str, KeyValue]) -> Coroutine[Any, Any, None] | None:
        """Replicate no more what the cluster has deleted, whether its shard is held, observed or was left. Return what
        deletes the files, if there are any. deleted: the keys of deletions. Raises StoreClosed."""
        deletions = deletions_of(deleted)
        found = [one for one in self._store.log_names() if self._is_deleted(*one, deletions.get(one[0], 0))]
        for name, number in found:
            self._deleting.add(log_folder(name, number))
            if number in self.shards:
                self.shards[number].remove_log(log_folder(name, number))
        for name in {name for name, _ in found}:
            self._around.deleted(name)
        return self._delete_files(found) if found else None

    def _is_deleted(self, name: str, number: int, count: int) -> bool:
        """Return whether a log is one of so many that were deleted, and is not being deleted yet. That etcd does not
        have it proves nothing."""
        if not count or log_folder(name, number) in self._deleting:
            return False
        with suppress(UnknownLog):  # a replica that was moved away is deleted at the same time
            log_id = self._store.log(name, number, create=False).id
            return deletions_before(log_id, self._cluster.id, name, number, count) is not None
        return False

    async def _delete_files(self, logs: Sequence[tuple[str, int]]) -> None:
        for name, number in logs:
            try:
                await asyncio.to_thread(self._delete, number, [name])
                _LOGGER.info("%s-%d: deleted, as the cluster has", name, number)
            except (TimestoneError, OSError) as error:  # tried again when etcd is read next
                _LOGGER.warning("%s-%d is not deleted yet: %s", name, number, error)
            self._deleting.discard(log_folder(name, number))
        self._around.refresh()

    async def watch_damage(self) -> None:
        """Pass on what the scrubber finds, until cancelled."""
        while True:
            await asyncio.sleep(_DAMAGE_S)
            try:
                found = await asyncio.to_thread(self.damaged)
            except (TimestoneError, OSError) as error:
                _LOGGER.warning("damage cannot be read: %s", error)
                continue
            for shard in list(self.shards.values()):
                shard.damaged(found)

    async def discard_often(self, registry: Registry, cluster_now: Callable[[], ClusterValue | None]) -> None:
        """Delete replicas that have been moved away, or are beyond repair, until cancelled. cluster_now: returns what
        etcd has of the cluster; None while nothing may be taken from it."""
        while True:
            await asyncio.sleep(_DISCARD_S)
            cluster = cluster_now()
            try:
                if cluster is not None:
                    if cluster.balance and cluster.level >= 2:  # else it would not come back
                        await self.give_up(registry)
                    await self.discard(registry, deletes=cluster.level >= 2)
            except (TimestoneError, OSError) as error:
                _LOGGER.warning("replicas that were moved away are not deleted: %s", error)

    async def give_up(self, registry: Registry) -> None:
        """Leave the shards of which this node has a replica that is beyond repair, where others have all of it: its
        files are deleted then, and it copies the shard again. Raises EtcdUnavailable."""
        for number in [one for one, shard in self.shards.items() if shard.is_beyond_repair]:
            record, pair = record_of(registry, number), registry.below("shards").get(str(number))
            if record is None or pair is None or record.leader is None:
                continue
            leader = node_of(record.leader)
            dropped = record.dropped(self._node, self._cluster.min_isr)
            if dropped is not None and registry.runs.get(leader) == record.run:
                present = registry.keys.node(leader), record.run
                outcome = await registry.etcd.put(
                    pair.key, dropped.encode(), revision=pair.revision, present=present
                )
                registry.note(outcome)
                if outcome.is_done:
                    _LOGGER.warning(
                        "shard %d: its replica here is beyond repair: it is copied from the leader", number
                    )

    async def discard(self, registry: Registry, *, deletes: bool = True) -> None:
        """Delete replicas that this node shall not have any more, once the others have been whole for a while, and note
        that in etcd in the next generation: only then may it come back.

        deletes: false while there may be nodes of a version that forgets who has left.

        Raises EtcdUnavailable, TimestoneError, OSError."""
        records = {number: record_of(registry, number) for number in range(self._cluster.shards)}
        left = {
            number: record
            for number, record in records.items()
            if record is not None
            and self._node not in record.nodes
            and number not in self.shards
            and (self._node in dict(record.left) or number in self.observed)
        }
        since_s = self._whole_s
        self._whole_s = {
            number: since_s.get(number, now_s())
            for number, record in left.items()
            if self._is_whole(record, registry.runs) and number not in self._closing
        }
        for number, whole_s in self._whole_s.items():
            held = self._store.log_names() if deletes else ()
            names = [name for name, partition in held if partition == number]
            if names and now_s() - whole_s >= WHOLE_S:
                await registry.refresh()
                record = record_of(registry, number)
                if record is None or self._node in record.nodes or not self._is_whole(record, registry.runs):
                    continue
                if number in self.shards:  # observes again
                    continue
                self._closing.add(number)  # one that observed may have a place at any time
                try:
                    await asyncio.to_thread(self._delete, number, names)
                finally:
                    self._closing.discard(number)
                _LOGGER.info("shard %d: others have all replicas; the files of this node are deleted", number)
            elif not names:
                self._forget_observed(number)
                await self._clear(registry, number, left[number])
        for number in self.observed & self.shards.keys():
            record = records.get(number)
            if record is not None and self._node in dict(record.left):
                await self._clear(registry, number, record)

    async def _clear(self, registry: Registry, number: int, record: ShardRecord) -> None:
        """Have it noted that this node may come back, if it may: nothing that it has promised counts any more."""
        if (cleared := record.cleared(self._node)) is not None:
            pair = registry.below("shards")[str(number)]
            registry.note(await registry.etcd.put(pair.key, cleared.encode(), revision=pair.revision))

    # Observed shards.

    def _generation(self, number: int, names: Collection[str]) -> int:
        """Return the generation of the newest record here."""
        found = 0
        for name in names:
            with suppress(UnknownLog):
                log = self._store.log(name, number, create=False)
                found = max(found, log.last_generation if isinstance(log, ReplicatedLog) else 0)
        return found

    def _note_observed(self, number: int) -> None:
        if number not in self.observed:
            self._store.documents.put_many(OBSERVED, {f"{number}": b"{}"})
            self.observed.add(number)

    def _forget_observed(self, number: int) -> None:
        if number in self.observed:
            self._store.documents.put_many(OBSERVED, {f"{number}": None})
            self.observed.discard(number)

    def _compacted(self, number: int, values: Mapping[str, LogValue]) -> list[str]:
        """Return the logs of a shard that are here and may lack a tombstone that others have dropped: it was kept for
        replicas only."""
        held = self._store.log_names()
        return [name for name, value in values.items() if value.config.compact and (name, number) in held]

    async def _begin_anew(self, number: int, shard: Shard | None, names: Sequence[str]) -> None:
        """Delete logs of a shard that this node observed, so that it copies them as a replica."""
        try:
            if shard is not None:
                await shard.close()
                await asyncio.sleep(_END_S)
            await asyncio.to_thread(self._delete, number, names)
            _LOGGER.info("shard %d: is copied again, because its logs are compacted", number)
            self._forget_observed(number)
        finally:
            self._closing.discard(number)

    def _delete(self, number: int, names: Sequence[str]) -> None:
        for name in names:
            with suppress(UnknownLog):  # it was deleted in the cluster as well
                self._store.delete_log(name, number)

    def _is_whole(self, record: ShardRecord, runs: Mapping[str, int]) -> bool:
        """Return whether a shard is led, and has all its replicas in sync; or its minimum, in a later generation, in
        which this node may be wanted back."""
        in_sync = {node_of(member) for member in record.isr}
        is_led = record.leader is not None and runs.get(node_of(record.leader)) == record.run
        is_later = record.cleared(self._node) is not None
        enough = is_later and len(in_sync) >= self._cluster.min_isr
        return is_led and (enough or in_sync >= set(record.replicas))

    async def _close(self, number: int, shard: Shard) -> None:
        try:
            await shard.close()
        finally:
            self._closing.discard(number)

    def damaged(self) -> frozenset[str]:
        """Return the logs in which recovery or the scrubber has found damage that is not repaired."""
        return frozenset(log_folder(one.log, one.partition) for one in self._store.damage())

    def _note_recovered(self) -> None:
        """Note what recovery has found, as the scrubber does: a later start trusts the segments that it has sealed."""
        for one in self._store.recoveries:
            for scan in one.scans:
                log = self._store.log(one.log, one.partition, create=False)
                if isinstance(log, ReplicatedLog) and (scan.state is State.DAMAGED or scan.damaged):
                    log.repair.note(scan.base_offset, scan.reason)

    def _hold(self, number: int, values: Mapping[str, LogValue], run: int) -> None:
        logs = {
            replica_name(name, number, value.deletions): name
            for name, value in values.items()
            if log_folder(name, number) not in self._deleting
        }
        if number not in self.shards:
            opened = {known: self._log(name, number, values[name]) for known, name in logs.items()}
            self.shards[number] = Shard(
                number, self._member, run, self._cluster.min_isr, opened, self.damaged(), self._around
            )
            return
        for known, name in logs.items():
            self.shards[number].add_log(known, self._log(name, number, values[name]))

    def _log(self, name: str, number: int, value: LogValue) -> ReplicatedLog:
        """Return a replica with the settings that etcd has for its log."""
        log_id = replica_id(self._cluster.id, name, number, value.deletions)
        try:
            log = self._store.log(name, number, create=False)
        except UnknownLog:
            make_replica_folder(self._store, name, number, log_id)
            log = self._store.log(name, number, config=value.config)
        if log.id != log_id and (self._has_front or value.deletions):
            raise WrongCluster(
                f"log {name} of this node is not the one of the cluster: it was made before clusters had MQTT, or etcd "
                "was restored from the past; start with an empty folder"
            )
        assert isinstance(log, ReplicatedLog)
        log.level = self._cluster.ack
        config = value.config
        wanted = {one: getattr(config, one) for one in LOG_SETTINGS}
        if changed := {one: new for one, new in wanted.items() if getattr(log.config, one) != new}:
            _LOGGER.info("%s-%d: settings are changed to %s", name, number, changed)
            log.configure(**changed)
        return log

    def _lose(self, number: int) -> None:
        """Say that the record of a shard is gone from etcd, and what it was. A new one would begin at generation 0 with
        any nodes, though the logs of others hold what was acknowledged."""
        if number in self.lost:
            return
        self.lost.add(number)
        record = self.shards[number].replica.record if number in self.shards else None
        last = record.encode().decode() if record is not None else "not known to this node"
        _LOGGER.error(
            "shard %d: its record is gone from etcd: no node is elected, admitted or dismissed; it was %s",
            number,
            last,
        )


def shown_alarms(shards: Mapping[int, Shard]) -> str:
    """Return why the first of these replicas stays out, and how many others do, for people; empty for none."""
    alarms = [f"shard {number}: {one.alarm}" for number, one in shards.items() if one.alarm]
    others = f", and {len(alarms) - 1} more" if len(alarms) > 1 else ""
    return alarms[0][:_ALARM_CHARACTERS] + others if alarms else ""


def record_of(registry: Registry, number: int) -> ShardRecord | None:
    """Return the record of a shard as etcd has it; None without one, or for one that is not valid."""
    pair = registry.pairs.get(registry.keys.shard(number))
    with suppress(UndecodableShardRecord):
        return ShardRecord.decode(pair.value) if pair is not None else None
    return None


def log_values(pairs: Mapping[str, KeyValue], deleted: Mapping[str, KeyValue]) -> dict[str, LogValue]:
    """Return the logs of a cluster by name, without those that are not valid. deleted: the keys of deletions."""
    found, deletions = {}, deletions_of(deleted)
    for name, pair in pairs.items():
        try:
            value = LogValue.decode(pair.value)
            if name not in deleted or name in deletions:
                found[check_log_name(name)] = replace(value, deletions=deletions.get(name, 0))
        except (InvalidName, UndecodableValue) as error:
            _LOGGER.error("a log in etcd is left out: %s", error)
    return found


def deletions_of(pairs: Mapping[str, KeyValue]) -> dict[str, int]:
    """Return how many logs of a name were deleted, without what is not valid."""
    found = {}
    for name, pair in pairs.items():
        try:
            found[name] = decode_deletions(pair.value)
        except UndecodableValue as error:
            _LOGGER.error("log %s is left out: %s", name, error)
    return found


def make_replica_folder(store: Store, name: str, partition: int, log_id: int) -> None:
    """Make the folder of a log with this id, unless the log exists; `Store.log` opens it. Raises OSError."""
    store.free_names()
    folder = store.path / log_folder(name, partition)
    if folder.name not in store.files.names(store.path):
        store.files.make_directory(folder)
    elif not is_begun(store.files.names(folder)):
        return
    identity = LogIdentity(log_id, name, partition, store.now_us())
    create_topics_file(store.files, folder / TOPICS_NAME, identity)
    store.files.sync_directory(folder)


def identity(files: Files, folder: Path, cluster: str) -> str:
    """Return the id of the node whose data this folder has; made at its first start. Raises WrongCluster, OSError."""
    found = _identity(folder)
    if found is None:
        found = {"node": secrets.token_hex(8), "cluster": cluster}
        _write_identity(files, folder, found)
    if found["cluster"] != cluster:
        raise WrongCluster(
            f"{folder} belongs to the cluster {found['cluster']}, and etcd has the cluster {cluster}"
        )
    return str(found["node"])


async def identity_joined(store: Store, registry: Registry, cluster: str, name: str) -> str:
    """Return the id of the node whose data a store has; made at its first start, once no other node has its name.
    Raises ValueError if one keeps it, WrongCluster, EtcdUnavailable, OSError."""
    # Machines may share a name, as `localhost`: nodes that have joined already start as ever.
    if _identity(store.path) is None:
        await registry.until_free(name)
    return identity(store.files, store.path, cluster)


def boot_of(folder: Path, boot_id: bytes) -> str:
    """Return what tells the members apart that a node is, one after another, where a record counts that is in memory
    only: the boot of its machine, and how often a flush has failed for good. Raises WrongCluster, OSError."""
    failures = (_identity(folder) or {}).get("failures", 0)
    return f"{boot_id.hex() if any(boot_id) else secrets.token_hex(8)}-{failures}"


def note_failed_flushes(files: Files, folder: Path) -> None:
    """Have a node be another member from now on if a flush has failed, and the process ended before it had written the
    records again. Call before the store is opened, which repairs what it can. Raises WrongCluster, OSError."""
    found = _identity(folder)
    if found is not None and any(folder.glob(f"*/{DOUBT_NAME}")):
        _write_identity(files, folder, {**found, "failures": found["failures"] + 1})


def _identity(folder: Path) -> dict[str, Any] | None:
    path = folder / IDENTITY_NAME
    try:
        found = json_object(path.read_bytes())
        failures = integer(found.get("failures", 0))
        return {**found, "node": str(found["node"]), "cluster": str(found["cluster"]), "failures": failures}
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise WrongCluster(f"{path} is not valid: {error!r}") from None


def _write_identity(files: Files, folder: Path, value: Mapping[str, Any]) -> None:
    path = folder / IDENTITY_NAME
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.unlink(missing_ok=True)
    files.write_file(unfinished, json.dumps(value).encode() + b"\n")
    files.rename(unfinished, path)
    files.sync_directory(folder)
