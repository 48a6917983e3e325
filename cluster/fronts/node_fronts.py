"""Fronts that serve on each node, whether it leads or not, and what they ask of the node."""

import asyncio
import contextlib
import threading
from collections.abc import Collection, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from timestone.errors import UnknownLog
from timestone.fronts import Front, OnEachNode, Reloadable
from timestone.log import Log
from timestone.replication.replicated_log import ReplicatedLog
from timestone.store import Store
from timestone_cluster.errors import UndecodableShardRecord, UndecodableValue
from timestone_cluster.etcd.client import Coordinator
from timestone_cluster.etcd.keys import ClusterKeys, ClusterValue, LogValue, NodeValue, replica_id
from timestone_cluster.etcd.registry import Registry
from timestone_cluster.fronts.state_log import STATE_LOG, STATE_SETTINGS, StateLog
from timestone_cluster.operations import configure_log, delete_log, make_log
from timestone_cluster.shard_record import ShardRecord, node_of

DOCUMENTS_LOG = "fronts-state"
"""Documents of these fronts, in each shard."""
_ASK_S = 30.0
T = TypeVar("T")


@contextlib.contextmanager
def named_failure(front: str) -> Iterator[None]:
    """Have an error of a front that cannot start name it, because the server names the node."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"{front}: {error.strerror or error}") from error
    except ValueError as error:
        raise ValueError(f"{front}: {error}") from error


class ServingFront(Front, OnEachNode, Protocol):
    """Front of this kind."""


class NodeFronts:
    """Fronts of one node. Implements `timestone.fronts.ClusterNode` for them; all else is for the event loop."""

    def __init__(self, fronts: Sequence[ServingFront], store: Store) -> None:
        """store: opened with `log_type=ReplicatedLog`."""
        self._fronts, self._store = fronts, store
        self._states: dict[int, StateLog] = {}
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._registry: Registry | None = None
        self._shard_count, self._cluster_id = 0, ""

    async def make_logs(self, etcd: Coordinator, keys: ClusterKeys) -> None:
        """Make the logs that the fronts need and that are missing. Raises ClusterError."""
        wanted: dict[str, Mapping[str, int]] = {DOCUMENTS_LOG: STATE_SETTINGS}
        for front in self._fronts:
            wanted.update(front.node_logs)
        for name, settings in wanted.items():
            await etcd.put(keys.log(name), LogValue().changed(settings).encode(), revision=0)

    async def start(self, registry: Registry, cluster: ClusterValue) -> Mapping[str, str]:
        """Let clients in, and return the addresses by the name of the front. Raises OSError, ValueError."""
        self._loop, self._registry = asyncio.get_running_loop(), registry
        self._shard_count, self._cluster_id = cluster.shards, cluster.id
        addresses = {}
        for front in self._fronts:
            front.join(self)
            with named_failure(front.name):
                await front.start()
            if front.advertised is not None:
                addresses[front.name] = front.advertised
        return addresses

    async def reload(self) -> None:
        """Read the files of the fronts again. Raises OSError, ValueError."""
        for front in self._fronts:
            if isinstance(front, Reloadable):
                await front.reload()

    async def stop(self) -> None:
        """End all connections."""
        for front in self._fronts:
            await front.stop()

    # For the fronts, in their threads.

    @property
    def own_logs(self) -> Collection[str]:
        """See `ClusterNode`."""
        return {STATE_LOG, DOCUMENTS_LOG, *(name for front in self._fronts for name in front.node_logs)}

    def places(self, front: str) -> Mapping[str, Any]:
        """See `ClusterNode`."""
        return self._asked(self._places(front))

    def documents(self, shard: int) -> StateLog:
        """See `ClusterNode`."""
        log = self._store.log(DOCUMENTS_LOG, shard, create=False)
        assert isinstance(log, ReplicatedLog)
        log.check_leads()
        with self._lock:
            state = self._states.get(shard)
            if state is None or state.term != log.term:
                state = StateLog(log, self._store.documents, is_patient=False)
                state.read()
                self._states[shard] = state
            return state

    def make_log(self, name: str, settings: Mapping[str, Any]) -> None:
        """See `ClusterNode`."""
        assert self._registry is not None
        self._asked(make_log(self._registry.etcd, self._registry.keys, name, settings))

    def configure_log(self, name: str, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `ClusterNode`."""
        assert self._registry is not None
        if name not in self._asked(self._log_names()):
            raise UnknownLog(name, ())
        return self._asked(configure_log(self._registry.etcd, self._registry.keys, name, settings)).settings

    def delete_log(self, name: str) -> None:
        """See `ClusterNode`."""
        assert self._registry is not None
        if name in self.own_logs or name not in self._asked(self._log_names()):
            raise UnknownLog(name, ())
        self._asked(delete_log(self._registry.etcd, self._registry.keys, name))

    def is_first(self, log: Log) -> bool:
        """See `ClusterNode`."""
        return log.id == replica_id(self._cluster_id, log.name, log.partition)

    def _asked(self, question: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(question, self._loop).result(_ASK_S)

    async def _log_names(self) -> Collection[str]:
        assert self._registry is not None
        return set(self._registry.below("logs"))

    async def _places(self, front: str) -> Mapping[str, Any]:
        assert self._registry is not None
        nodes: dict[str, Any] = {}
        shards: list[Any] = []
        for node, pair in self._registry.below("nodes").items():
            try:
                value = NodeValue.decode(pair.value)
            except UndecodableValue:
                continue
            nodes[node] = {"name": value.name, "address": value.fronts.get(front)}
        known = self._registry.below("shards")
        for number in range(self._shard_count):
            try:
                found = ShardRecord.decode(known[str(number)].value)
            except (KeyError, UndecodableShardRecord):
                shards.append({"leader": None, "in_sync": [], "replicas": []})
                continue
            leader = node_of(found.leader) if found.leader is not None else None
            shards.append(
                {
                    "leader": leader if leader in nodes else None,
                    "in_sync": sorted(set(map(node_of, found.isr))),
                    "replicas": list(found.replicas),
                }
            )
        return {"nodes": nodes, "shards": shards}
