"""A node of a cluster: registers in etcd, holds its replicas, and joins them with those of other nodes."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar

from timestone.address import shown_address
from timestone.config import Ack
from timestone.errors import TimestoneError
from timestone.metrics.metric import Metric
from timestone.store import Store
from timestone_cluster.actions import Propose
from timestone_cluster.affinity import Arrivals
from timestone_cluster.balancer import after
from timestone_cluster.deadlines import TICK_S
from timestone_cluster.division import Division
from timestone_cluster.errors import EtcdUnavailable, WrongCluster
from timestone_cluster.etcd.client import Coordinator
from timestone_cluster.etcd.keys import (
    BEATS_LEVEL,
    LEVELS,
    OBSERVERS_LEVEL,
    ClusterKeys,
    ClusterValue,
    NodeValue,
)
from timestone_cluster.etcd.registry import Registration, Registry, woken
from timestone_cluster.frames import Frame
from timestone_cluster.fronts.node_fronts import NodeFronts
from timestone_cluster.fronts.state_log import STATE_LOG
from timestone_cluster.node.front_host import FrontHost
from timestone_cluster.node.held_shards import (
    HeldShards,
    boot_of,
    identity_joined,
    log_values,
    record_of,
    shown_alarms,
)
from timestone_cluster.node.home import Around
from timestone_cluster.node.placement import Placement, node_metrics, replica_counts, wanted_leaders
from timestone_cluster.node.relay import Place
from timestone_cluster.node.requests import Requests
from timestone_cluster.shard.shard import Shard
from timestone_cluster.shard_record import member_of, node_of
from timestone_cluster.transport.links import Item, Link, Listener, Tls
from timestone_cluster.transport.wire import Beats, Hello, Message, encoded

_LOGGER = logging.getLogger("timestone.cluster")
_STOPS, _ASKED = "this node stops", "the balancer asks for it"  # why it hands over, for the log
_ETCD_S = 30.0
_HAND_OVER_S = 5.0
_SPACE_S = 1.0
_NO_ROOM, _ROOM = 1.25, 1.5
"""A node leads nothing below so much of `min_free_bytes`, until it has so much."""


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
        zone: str = "",
        weight: int = 1,
        listen: tuple[str, int],
        advertise: str | None = None,
        tls: Tls | None = None,
        host: FrontHost | None = None,
        fronts: NodeFronts | None = None,
        failed: Callable[[Exception], None],
    ) -> None:
        """store: opened with `log_type=ReplicatedLog`. advertise: HOST:PORT by which others reach this node, if it is
        not what it listens on. host: of the front that serves where this node leads, if it has one. fronts:
        those that serve in any case. failed: called when the process has to end, because its store cannot be relied
        on."""
        self._store, self._etcd, self._keys = store, etcd, keys
        self._value = NodeValue(name, "", zone, weight, *LEVELS)
        self._listen, self._advertise, self._tls = listen, advertise, tls
        self._host, self._fronts, self.failed = host, fronts, failed
        self.address = self.id = ""
        self._run = 0
        self._cluster: ClusterValue | None = None
        self._finding: asyncio.Task[Any] | None = None
        self._held: HeldShards | None = None
        self._placement: Placement | None = None
        self._behind, self._full = set[str](), set[str]()  # nodes that lack records since their start; space
        self._stopping = set[str]()
        self._links: dict[str, Link] = {}
        self._beats: dict[str, dict[int, int]] = {}
        """Shards and generations of the next heartbeat to each node that takes one for all."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_due, self._is_changed = asyncio.Event(), asyncio.Event()
        self._registry = Registry(etcd, keys, self._is_changed.set)
        self.shown = self._registry.shown
        self._registration: Registration | None = None
        self._listener: Listener | None = None

    @property
    def shards(self) -> Mapping[int, Shard]:
        """Return the replicas by the number of their shard; none before the start."""
        return self._held.shards if self._held is not None else {}

    @property
    def description(self) -> bytes | None:
        """Return what etcd has of the cluster; None before the start. Any thread may ask."""
        return None if self._cluster is None else self._cluster.encode()

    @property
    def _member(self) -> str:
        return member_of(self.id, self._value.boot)

    @property
    def own_logs(self) -> Collection[str]:
        """Return the logs that the nodes write for themselves."""
        return self._fronts.own_logs if self._fronts is not None else (STATE_LOG,)

    # Starting and stopping.

    async def start(self) -> None:
        """Join the cluster: listen, then register. Raises WrongCluster, EtcdUnavailable after 30 s, OSError, and
        ValueError for a front that the cluster cannot have, or a name that a running node has."""
        self._finding = asyncio.current_task()
        cluster = self._cluster = await self._joined()
        self._finding = None
        if cluster.ack is Ack.WRITTEN:
            self._value = replace(self._value, boot=boot_of(self._store.path, self._store.boot_id))
        has_front, member = self._host is not None or self._fronts is not None, self._member
        held = self._held = HeldShards(self._store, cluster, member, self, has_front=has_front)
        if (deleting := held.delete(self._registry.below("deleted"))) is not None:
            await deleting  # before any front reads them
        requests = Requests(self._store, held.shards, held.damaged, self._host, self.own_logs, held.observed)
        listener = self._listener = Listener(self._cluster.id, self._linked, self._received, requests.handle)
        host, _ = self._listen
        port = await listener.start(*self._listen, self._tls.server if self._tls else None)
        self.address = self._advertise or shown_address(host, port)
        if self._host is not None:
            division = Division(self._cluster.shards, self._cluster.topic_keys)
            context = self._tls.client if self._tls else None
            hello = Hello(self._cluster.id, "")
            self._host.open(Around(division, hello, context, self._front_place, held.shards, self.hurry))
        fronts = await self._fronts.start(self._registry, self._cluster) if self._fronts is not None else {}
        whole = self._host is not None and self._cluster.shards > 1
        self._value = replace(self._value, peer=self.address, fronts=fronts, observes=whole, is_behind=whole)
        keys = self._keys.node(self.id), self._keys.member(self.id)
        registration = self._registration = Registration(
            self._etcd, *keys, self._value, self._registered, lambda: self._cluster_now() is not None
        )
        self._placement = Placement(
            self._etcd, self._keys, self._registry, self.id, lambda: registration.lease, self._arrivals
        )
        self._start(self._registration.run())
        self._start(self._registry.run())
        self._start(self._follow())
        self._start(self._tick())
        self._start(self._placement.run(self._cluster_now))
        self._start(held.watch_damage())
        self._start(held.discard_often(self._registry, self._cluster_now))
        self._start(self._watch_space())

    async def _joined(self) -> ClusterValue:
        """Return the cluster once this node is one of it, with the logs of its fronts: again while etcd does not
        answer. See `start`."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + _ETCD_S
        while True:
            try:
                found = await self._registry.found_cluster(ends_s - loop.time())
                if not LEVELS[0] <= found.level <= LEVELS[1]:
                    raise _wrong_level(found.level)
                if self._host is not None:
                    await self._host.make_logs(self._etcd, self._keys, found)
                if self._fronts is not None:
                    await self._fronts.make_logs(self._etcd, self._keys)
                self.id = await identity_joined(self._store, self._registry, found.id, self._value.name)
                return found
            except EtcdUnavailable:
                if loop.time() > ends_s:
                    raise
                await asyncio.sleep(TICK_S)

    def interrupt(self) -> None:
        """Cancel a start that waits for etcd."""
        if self._finding is not None:
            self._finding.cancel()

    async def reload(self) -> None:
        """Have the front read its files again. Raises OSError, ValueError."""
        for one in (self._host, self._fronts):
            if one is not None:
                await one.reload()

    async def stop(self) -> None:
        """Hand over what this node leads, for five seconds at most and to nodes that do not stop; then leave."""
        try:
            if self._registration is not None:
                self._tell(is_stopping=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(_HAND_OVER_S):
                    while sum(one.hand_over(self._staying(), _STOPS) for one in self.shards.values()):
                        await asyncio.sleep(TICK_S / 2)
            for one in (self._host, self._fronts):
                if one is not None:
                    await one.stop()
        finally:  # also when the caller waits no longer, and closes the store
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

    def _staying(self) -> dict[str, int]:
        """Return the registered members that do not stop, and their runs."""
        return {one: run for one, run in self._registry.members.items() if node_of(one) not in self._stopping}

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
            runs, wanted = self._registry.members, wanted_leaders(self._registry)
            marked = *self._registry.below("draining"), *self._registry.below("leaving")
            avoided = {*marked, *self._full, *self._stopping}
            caught_up = self._cluster is not None and len(self.shards) == self._cluster.shards
            for number, shard in list(self.shards.items()):
                caught_up &= shard.tick(runs, avoided, self._behind)
                node = wanted.get(number)
                if node == after(shard.replica.generation):
                    shard.resign(_ASKED)
                elif node is not None and node != self.id:
                    shard.hand_over({one: run for one, run in runs.items() if node_of(one) == node}, _ASKED)
            self._beat()
            if self._host is not None:
                self._host.tick(self.shards)
            if self._value.is_behind and caught_up:
                _LOGGER.info("this node has the records of all shards")
                self._tell(is_behind=False)
            if (alarm := shown_alarms(self.shards)) != self._value.alarm:
                self._tell(alarm=alarm)
            await woken(self._is_due, TICK_S)

    def _beat(self) -> None:
        for node, beats in self._beats.items():
            if beats:
                self.send(node, encoded(Beats(tuple(beats), tuple(beats.values()))))
                beats.clear()

    async def _watch_space(self) -> None:
        """Tell others when the disk is about to be full, so that one with space leads; appends are refused later."""
        while True:
            await asyncio.sleep(_SPACE_S)
            was_full = self._value.is_full
            least_bytes = self._store.config.min_free_bytes * (_ROOM if was_full else _NO_ROOM)
            with suppress(OSError):
                free_bytes = self._store.files.free_bytes(self._store.path)
                if (free_bytes < least_bytes) != was_full:
                    what = "this node may lead again" if was_full else "others lead until there are more"
                    level = logging.INFO if was_full else logging.WARNING
                    _LOGGER.log(level, "%d bytes are free: %s", free_bytes, what)
                    self._tell(is_full=not was_full)

    def _tell(self, **states: Any) -> None:
        """Change what the registration of this node says."""
        self._value = replace(self._value, **states)
        assert self._registration is not None
        self._registration.change(self._value)

    # etcd.

    def _registered(self, run: int) -> None:
        self._run = run
        for shard in self.shards.values():
            shard.registered(run)
        self._registry.wake()
        self._is_changed.set()

    async def _follow(self) -> None:
        """Take what changes in etcd, once for all that has come together: many shards may change at a time."""
        while True:
            await self._is_changed.wait()
            self._is_changed.clear()
            with suppress(EtcdUnavailable):
                await self._take()

    async def _take(self) -> None:
        """Take the picture of etcd: new nodes, logs, shards and records. Raises EtcdUnavailable."""
        if not self._run or self._held is None or self._placement is None:
            return
        registry, cluster = self._registry, self._cluster_now()
        if cluster is None:
            return
        for node in registry.below("nodes"):
            if node != self.id and node not in self._links:
                self._links[node] = self._made_link(node)
        found_values = {node: registry.value_of(node) for node in registry.below("nodes")}
        values = {node: value for node, value in found_values.items() if value is not None}
        self._beats = {
            node: self._beats.get(node, {})
            for node, value in values.items()
            if value.highest_level >= BEATS_LEVEL
        }
        self._behind = {node for node, value in values.items() if value.is_behind}
        self._full = {node for node, value in values.items() if value.is_full}
        self._stopping = {node for node, value in values.items() if value.is_stopping}
        self._held.observes = self._value.observes and cluster.level >= OBSERVERS_LEVEL
        logs, deleted = registry.below("logs"), registry.below("deleted")
        if (deleting := self._held.delete(deleted)) is not None:
            self._start(deleting)
        if self._host is not None and not logs.keys() >= {*self._host.log_names}:
            self._start(self._host.make_again(self._etcd, self._keys, cluster))
        found = log_values(logs, deleted)
        records = len(registry.below("shards"))
        for number in range(cluster.shards):
            was_held, pair = number in self.shards, registry.pairs.get(self._keys.shard(number))
            if pair is None and not was_held and self._keys.placed(number) not in registry.pairs:
                if found:  # without a log there is nothing to hold
                    await self._placement.place_new(number, cluster)
            elif (closing := self._held.take(number, pair, found, self._run)) is not None:
                self._start(closing)
            elif number in self.shards and not was_held:
                await asyncio.sleep(0)  # its files were opened: without a pause, many would cost the lease
        is_spare = not self.shards.keys() - self._held.observed
        self._placement.note_spare(records, cluster.shards, is_spare=is_spare)
        if self._host is not None:
            self._host.leader_changed()

    def _cluster_now(self) -> ClusterValue | None:
        """Return what etcd has of the cluster; None if nothing may be taken from it, or before its keys were read."""
        found = self._registry.cluster_joined(self._cluster.id) if self._cluster is not None else None
        if found is not None and found.level > LEVELS[1]:
            self.failed(_wrong_level(found.level))
            return None
        return found

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

    def hurry(self) -> None:
        """Do now what the next tick would do: another replica waits to lead."""
        self._is_due.set()

    # Other nodes.

    def _made_link(self, node: str) -> Link:
        assert self._cluster is not None
        link = Link(
            Hello(self._cluster.id, self._member),
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

    def beat(self, node: str, shard: int, generation: int) -> bool:
        """See `Surroundings`."""
        if node not in self._beats:
            return False
        self._beats[node][shard] = generation
        return True

    def _linked(self, member: str) -> None:
        self._beats.get(node_of(member), {}).clear()
        for shard in self.shards.values():
            shard.linked(member)

    def _received(self, member: str, number: int, message: Message) -> None:
        if isinstance(message, Beats):
            for shard, generation in zip(message.shards, message.generations, strict=False):
                if shard in self.shards:
                    self.shards[shard].beat(member, generation)
        elif (to := self.shards.get(number)) is not None and isinstance(message, Frame):
            to.received(member, message)

    # The front.

    def served(self, shard: int) -> None:
        """See `Surroundings`."""
        if self._host is not None:
            self._host.served(self.shards[shard])

    def lost(self, shard: int) -> None:
        """See `Surroundings`."""
        if self._host is not None:
            self._host.lost(shard)

    def has_left(self, shard: int) -> bool:
        """See `Surroundings`."""
        return self._host is None or self._host.has_left(shard)

    def deleted(self, log: str) -> None:
        """See `Surroundings`."""
        if self._host is not None:
            self._host.deleted(log)

    def _arrivals(self) -> Arrivals:
        return self._host.arrivals() if self._host is not None else Arrivals()

    def _front_place(self, number: int) -> Place | None:
        """Return where the front serves the clients of a shard, as far as this node knows."""
        shard = self.shards.get(number)
        record = shard.replica.record if shard is not None else record_of(self._registry, number)
        leader = record.leader if record is not None else None
        value = self._registry.value_of(node_of(leader)) if leader is not None else None
        if record is None or leader is None or value is None:
            return None
        return Place(node_of(leader), record.generation, value.peer, value.name)

    # For people.

    def describe(self) -> list[str]:
        """Return lines for the start message."""
        name, secret = self._value.name, "TLS with certificates" if self._tls else "without TLS"
        return [f"cluster  {self._keys.name}, node {name} ({self.id}), peers at {self.address}, {secret}"]

    def status(self) -> dict[str, Any]:
        """Return counters and gauges by name."""
        return {
            **replica_counts([one.replica for one in self.shards.values()]),
            "alarms": sum(bool(one.alarm) for one in self.shards.values())
            + len(self._held.lost if self._held else ())
            + bool(self._registry.refusal),
            "links": sum(link.is_up for link in self._links.values()),
            **(self._host.status() if self._host is not None else {}),
        }

    def metrics(self) -> Sequence[Metric]:
        """Return the same for Prometheus."""
        return node_metrics(self.status())


def _wrong_level(level: int) -> WrongCluster:
    spoken = " to ".join(map(str, LEVELS))
    return WrongCluster(f"the cluster is at level {level} of the protocol, and this version has {spoken}")
