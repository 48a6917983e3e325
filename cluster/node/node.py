"""A node of a cluster: registers in etcd, holds its replicas, and joins them with those of other nodes."""

import asyncio
import json
import logging
import secrets
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from timestone.address import shown_address
from timestone.disk.files import Files
from timestone.errors import InvalidName, TimestoneError, UnknownLog
from timestone.format.names import log_folder
from timestone.fronts import Door
from timestone.recovery.segment_report import State
from timestone.replication.replicated_log import ReplicatedLog
from timestone.store import Store
from timestone_cluster.actions import Propose
from timestone_cluster.deadlines import TICK_S
from timestone_cluster.errors import (
    EtcdUnavailable,
    UndecodableShardRecord,
    UndecodableValue,
    WrongCluster,
)
from timestone_cluster.etcd.client import Coordinator
from timestone_cluster.etcd.keys import (
    LOG_SETTINGS,
    ClusterKeys,
    ClusterValue,
    LogValue,
    NodeValue,
    check_log_name,
)
from timestone_cluster.etcd.registry import Registration, Registry, cluster_of
from timestone_cluster.frames import Frame
from timestone_cluster.leader import Leader
from timestone_cluster.node.front_host import SHARD, FrontHost
from timestone_cluster.node.links import Item, Link, Listener
from timestone_cluster.node.relay import Place, Relays
from timestone_cluster.node.replica_folder import make_replica_folder, replica_id
from timestone_cluster.node.requests import Requests
from timestone_cluster.node.shard import Shard, now_s
from timestone_cluster.node.wire import Hello, Message
from timestone_cluster.shard_record import ShardRecord, node_of

_LOGGER = logging.getLogger("timestone.cluster")
IDENTITY_NAME = "NODE"
_ETCD_S = 30.0
_HAND_OVER_S = 5.0
_DAMAGE_S = 5.0
"""How often to ask what the scrubber has found."""
_RELAYS = 100_000
"""Most clients that a node passes on."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Contexts of the connections between nodes, in both of which certificates are required."""

    server: ssl.SSLContext
    client: ssl.SSLContext


class Node:
    """A node, as a service of a server. For one event loop."""

    name: ClassVar[str] = "cluster"

    def __init__(
        self,
        store: Store,
        etcd: Coordinator,
        keys: ClusterKeys,
        *,
        name: str,
        listen: tuple[str, int],
        advertise: str | None = None,
        tls: Tls | None = None,
        host: FrontHost | None = None,
        failed: Callable[[Exception], None],
    ) -> None:
        """store: opened with `log_type=ReplicatedLog`. advertise: HOST:PORT by which others reach this node, if it is
        not what it listens on. host: of the front, if the node has one. failed: called when the process has to end,
        because its store cannot be relied on."""
        self._store, self._etcd, self._keys = store, etcd, keys
        self._node_name, self._listen, self._advertise, self._tls = name, listen, advertise, tls
        self._host, self.failed = host, failed
        self.shards: dict[int, Shard] = {}
        self.address = ""
        self.id = ""
        self._run = 0
        self._cluster: ClusterValue | None = None
        self._lost_records: set[int] = set()
        self._links: dict[str, Link] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._registry = Registry(etcd, keys, self._changed)
        self._registration: Registration | None = None
        self._listener: Listener | None = None

    # Starting and stopping.

    async def start(self) -> None:
        """Join the cluster: listen, then register. Raises WrongCluster, EtcdUnavailable after 30 s, OSError, and
        ValueError for a front that the cluster cannot have."""
        self._cluster = await self._found_cluster()
        if self._host is not None:
            await self._host.make_logs(self._etcd, self._keys, self._cluster)
        self.id = identity(self._store.files, self._store.path, self._cluster.id)
        requests = Requests(self._store, self.shards, self._damaged, self.id, self._host)
        listener = self._listener = Listener(self._cluster.id, self._linked, self._received, requests.handle)
        host, _ = self._listen
        port = await listener.start(*self._listen, self._tls.server if self._tls else None)
        self.address = self._advertise or shown_address(host, port)
        if self._host is not None:
            self._host.open(self._made_relays)
        value = NodeValue(self._node_name, self.address)
        self._registration = Registration(self._etcd, self._keys.node(self.id), value, self._registered)
        self._start(self._registration.run())
        self._start(self._registry.run())
        self._start(self._tick())
        self._start(self._watch_damage())

    async def _found_cluster(self) -> ClusterValue:
        ends_s = now_s() + _ETCD_S
        while True:
            try:
                picture = await self._etcd.read(self._keys.cluster)
            except EtcdUnavailable as error:
                if now_s() > ends_s:
                    raise
                _LOGGER.warning("etcd does not answer: %s", error)
                await asyncio.sleep(1)
                continue
            return cluster_of(picture.pairs, self._keys)

    async def reload(self) -> None:
        """Have the front read its files again. Raises OSError, ValueError."""
        if self._host is not None:
            await self._host.reload()

    async def stop(self) -> None:
        """Hand over what this node leads, for five seconds at most; then leave."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_HAND_OVER_S):
                while [one for one in self.shards.values() if one.hand_over(self._registry.runs)]:
                    await asyncio.sleep(TICK_S / 2)
        if self._host is not None:
            await self._host.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for shard in self.shards.values():
            await shard.close()
        if self._registration is not None:
            await self._registration.end()
        if self._listener is not None:
            await self._listener.stop()
        await self._etcd.close()

    def _start(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            trace = None if isinstance(error, TimestoneError | OSError) else error
            _LOGGER.error("a task of the node has failed: %s", error, exc_info=trace)
            self.failed(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    async def _tick(self) -> None:
        while True:
            draining = self._registry.below("draining")
            for shard in list(self.shards.values()):
                shard.tick(self._registry.runs, draining)
            if self._host is not None:
                self._host.tick(self.shards.get(SHARD))
            await asyncio.sleep(TICK_S)

    async def _watch_damage(self) -> None:
        """Pass on what the scrubber finds."""
        while True:
            await asyncio.sleep(_DAMAGE_S)
            try:
                found = await asyncio.to_thread(self._damaged)
            except (TimestoneError, OSError) as error:
                _LOGGER.warning("damage cannot be read: %s", error)
                continue
            for shard in list(self.shards.values()):
                shard.damaged(found)

    # etcd.

    def _registered(self, run: int) -> None:
        self._run = run
        for shard in self.shards.values():
            shard.registered(run)
        self._registry.wake()
        self._changed()

    def _changed(self) -> None:
        """Take the picture of etcd: new nodes, logs, shards and records."""
        if not self._run:
            return
        registry = self._registry
        if self._cluster is None or not self._is_same_cluster():
            _LOGGER.error(
                "the cluster in etcd is not the one that this node has joined: nothing is taken from it"
            )
            return
        for node in registry.below("nodes"):
            if node != self.id and node not in self._links:
                self._links[node] = self._made_link(node)
        if not registry.below("logs"):
            return  # without a log there is nothing to hold, and no frame by which to hear of each other
        known, placed = registry.below("shards"), registry.below("placed")
        for number in range(self._cluster.shards):
            found = known.get(str(number))
            if found is None and (number in self.shards or str(number) in placed):
                self._lost_record(number)
                continue
            if found is None:
                self._make_shard(number)
                continue
            self._lost_records.discard(number)
            try:
                record = ShardRecord.decode(found.value)
            except UndecodableShardRecord as error:
                _LOGGER.error("shard %d: %s", number, error)
                continue
            if self.id in record.nodes:
                self._take_shard(number)
                self.shards[number].record_seen(record, found.revision)
                if self._host is not None:
                    self._host.leader_changed()
            elif number in self.shards:
                _LOGGER.warning("shard %d: another node has this one's place; its files stay", number)
                self._start(self.shards.pop(number).close())

    def _is_same_cluster(self) -> bool:
        pair = self._registry.pairs.get(self._keys.cluster)
        try:
            return (
                pair is not None
                and self._cluster is not None
                and (ClusterValue.decode(pair.value).id == self._cluster.id)
            )
        except UndecodableValue:
            return False

    def _log_values(self) -> dict[str, LogValue]:
        found = {}
        for name, pair in self._registry.below("logs").items():
            try:
                found[check_log_name(name)] = LogValue.decode(pair.value)
            except (InvalidName, UndecodableValue) as error:
                _LOGGER.error("a log in etcd is left out: %s", error)
        return found

    def _take_shard(self, number: int) -> None:
        assert self._cluster is not None
        values = self._log_values()
        logs = {log_folder(name, number): name for name in values}
        if number not in self.shards:
            opened = {folder: self._log(name, number, values[name]) for folder, name in logs.items()}
            self.shards[number] = Shard(
                number, self.id, self._run, self._cluster.min_isr, opened, self._damaged(), self
            )
            return
        for folder, name in logs.items():
            log = self._log(name, number, values[name])
            if self.shards[number].log(folder) is None:
                self.shards[number].add_log(folder, log)

    def _log(self, name: str, number: int, value: LogValue) -> ReplicatedLog:
        """Return a replica with the settings that etcd has for its log."""
        assert self._cluster is not None
        log_id = replica_id(self._cluster.id, name, number)
        try:
            log = self._store.log(name, number, create=False)
        except UnknownLog:
            make_replica_folder(self._store, name, number, log_id)
            log = self._store.log(name, number, config=value.config)
        if log.id != log_id and self._host is not None:
            raise WrongCluster(
                f"log {name} of this node was made before clusters had MQTT: start with an empty folder"
            )
        assert isinstance(log, ReplicatedLog)
        wanted = {one: getattr(value.config, one) for one in LOG_SETTINGS}
        if changed := {one: new for one, new in wanted.items() if getattr(log.config, one) != new}:
            _LOGGER.info("%s-%d: settings are changed to %s", name, number, changed)
            log.configure(**changed)
        return log

    def _damaged(self) -> frozenset[str]:
        """Return the logs in which recovery or the scrubber has found damage."""
        found = {
            log_folder(one.log, one.partition)
            for one in self._store.recoveries
            if any(scan.state is State.DAMAGED or scan.damaged for scan in one.scans)
        }
        return frozenset(found | {log_folder(one.log, one.partition) for one in self._store.damage()})

    def _make_shard(self, number: int) -> None:
        """Put the first record of a shard, once there are enough nodes for it."""
        assert self._cluster is not None
        nodes = sorted(self._registry.below("nodes"))
        count = self._cluster.replicas
        if len(nodes) < count or self.id not in nodes:
            return
        first = number % len(nodes)
        chosen = (nodes[first:] + nodes[:first])[:count]
        self._start(self._put_shard(number, ShardRecord.first(tuple(chosen))))

    async def _put_shard(self, number: int, record: ShardRecord) -> None:
        placed = self._keys.placed(number)
        with suppress(EtcdUnavailable):
            self._registry.note(
                await self._etcd.put(
                    self._keys.shard(number), record.encode(), revision=0, present=(placed, 0), also=placed
                )
            )

    def _lost_record(self, number: int) -> None:
        """Say that the record of a shard is gone from etcd, and what it was. A new one would begin at generation 0 with
        any nodes, though the logs of others hold what was acknowledged."""
        if number in self._lost_records:
            return
        self._lost_records.add(number)
        record = self.shards[number].replica.record if number in self.shards else None
        last = record.encode().decode() if record is not None else "not known to this node"
        _LOGGER.error(
            "shard %d: its record is gone from etcd: no node is elected, admitted or dismissed; it was %s",
            number,
            last,
        )

    def propose(self, shard: int, proposal: Propose) -> None:
        """Run a transaction for a shard."""
        self._start(self._proposed(shard, proposal))

    async def _proposed(self, number: int, proposal: Propose) -> None:
        present, absent = (
            None if one is None else (self._keys.node(one[0]), one[1])
            for one in (proposal.present, proposal.absent)
        )
        try:
            outcome = await self._etcd.put(
                self._keys.shard(number),
                proposal.record.encode(),
                revision=proposal.revision,
                present=present,
                absent=absent,
            )
        except EtcdUnavailable as error:
            _LOGGER.debug("shard %d: outcome of a proposal is unknown: %s", number, error)
            return self._registry.wake()
        if not outcome.is_done and outcome.found is not None and outcome.found.revision == proposal.revision:
            if number in self.shards:
                self.shards[number].refused(proposal)
            return self._registry.wake()
        return self._registry.note(outcome)

    def refresh(self) -> None:
        """Read the keys soon."""
        self._registry.wake()

    # Other nodes.

    def _made_link(self, node: str) -> Link:
        assert self._cluster is not None
        link = Link(
            Hello(self._cluster.id, self.id),
            lambda: self._registry.address_of(node),
            self._tls.client if self._tls else None,
            lambda: self._linked(node),
        )
        self._start(link.run())
        return link

    def send(self, node: str, item: Item) -> None:
        """Send to a node, if there is a connection."""
        if node in self._links:
            self._links[node].put(item)

    def _linked(self, node: str) -> None:
        for shard in self.shards.values():
            shard.linked(node)

    def _received(self, node: str, number: int, message: Message) -> None:
        if number in self.shards and isinstance(message, Frame):
            self.shards[number].received(node, message)

    # The front.

    def served(self, shard: int) -> None:
        """See `Surroundings`."""
        if self._host is not None:
            self._host.served(self.shards[shard])

    def lost(self, shard: int) -> None:
        """See `Surroundings`."""
        if self._host is not None:
            self._host.lost()

    def has_left(self, shard: int) -> bool:
        """See `Surroundings`."""
        return self._host is None or self._host.has_left()

    def _made_relays(self, doors: Sequence[Door]) -> Relays:
        assert self._cluster is not None
        context = self._tls.client if self._tls else None
        return Relays(doors, Hello(self._cluster.id, ""), context, self._front_place, _RELAYS)

    def _front_place(self) -> Place | None:
        """Return where the front serves, as far as this node knows."""
        shard = self.shards.get(SHARD)
        record = shard.replica.record if shard is not None else None
        leader = record.leader if record is not None else None
        address = self._registry.address_of(node_of(leader)) if leader is not None else None
        if record is None or leader is None or address is None:
            return None
        return Place(leader, record.generation, address)

    # For people.

    def describe(self) -> list[str]:
        """Return lines for the start message."""
        secret = "TLS with certificates" if self._tls else "without TLS"
        return [
            f"cluster  {self._keys.name}, node {self._node_name} ({self.id}), peers at {self.address}, {secret}"
        ]

    def status(self) -> dict[str, Any]:
        """Return counters and gauges by name."""
        roles = [one.replica.role for one in self.shards.values()]
        return {
            "shards": len(self.shards),
            "leading": sum(isinstance(role, Leader) and role.is_serving for role in roles),
            "alarms": sum(bool(one.alarm) for one in self.shards.values()) + len(self._lost_records),
            "links": sum(link.is_up for link in self._links.values()),
            **(self._host.status() if self._host is not None else {}),
        }


def identity(files: Files, folder: Path, cluster: str) -> str:
    """Return the id of the node whose data this folder has; made at its first start. Raises WrongCluster, OSError."""
    path = folder / IDENTITY_NAME
    try:
        found = json.loads(path.read_bytes())
        node, owner = str(found["node"]), str(found["cluster"])
    except FileNotFoundError:
        node, owner = secrets.token_hex(8), cluster
        unfinished = path.with_name(path.name + ".tmp")
        unfinished.unlink(missing_ok=True)
        files.write_file(unfinished, json.dumps({"node": node, "cluster": cluster}).encode() + b"\n")
        files.rename(unfinished, path)
        files.sync_directory(folder)
    except (ValueError, KeyError, TypeError) as error:
        raise WrongCluster(f"{path} is not valid: {error!r}") from None
    if owner != cluster:
        raise WrongCluster(f"{folder} belongs to the cluster {owner}, and etcd has the cluster {cluster}")
    return node
