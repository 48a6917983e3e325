"""Appending to a cluster from outside: finds the leader of a shard through etcd, and again when it has changed."""

import asyncio
import itertools
import ssl
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any

from timestone.address import parse_address, send
from timestone.errors import NotLeader, QueueFull, StorageFull, UnknownLog
from timestone_cluster.errors import (
    AppendRefused,
    AppendUnknown,
    ClusterError,
    UndecodableFrame,
    WrongCluster,
)
from timestone_cluster.etcd.client import Coordinator
from timestone_cluster.etcd.keys import ClusterKeys, NodeValue
from timestone_cluster.etcd.registry import below, check_shard, cluster_of
from timestone_cluster.shard_record import ShardRecord, node_of
from timestone_cluster.transport.links import give_up_early
from timestone_cluster.transport.refusals import error_of
from timestone_cluster.transport.wire import Append, Appended, Hello, encoded, read_message

_DIAL_S = 2.0
_PAUSE_S = 0.1
_LOOK_S = 2.0
"""How often to ask etcd whether a leader that does not answer still leads."""


class ClusterClient:
    """Appends to the logs of a cluster. For one event loop; any number of appends at a time."""

    def __init__(
        self, etcd: Coordinator, keys: ClusterKeys, *, context: ssl.SSLContext | None = None
    ) -> None:
        self._etcd, self._keys, self._context = etcd, keys, context
        self._connections: dict[int, _Connection] = {}
        self._numbers = itertools.count()
        self._lock = asyncio.Lock()

    async def append(
        self, log: str, payloads: Sequence[bytes], *, topics: Sequence[str] = (), shard: int = 0
    ) -> int:
        """Append records to a log of a shard, all or none, and return the offset of the first. They are then on the
        disks of all in-sync replicas.

        Raises NotLeader, StorageFull, QueueFull, EtcdUnavailable or OSError if nothing was appended, UnknownLog if the
        cluster does not have the log, AppendRefused for records that the log does not take; AppendUnknown if the
        records may be in the log or not."""
        connection = await self._connection(shard, log)
        return await self._append(connection, shard, Append(next(self._numbers), log, [*topics], [*payloads]))

    async def _append(self, connection: "_Connection", shard: int, message: Append) -> int:
        try:
            return await connection.append(shard, message)
        except AppendRefused:
            raise
        except (ClusterError, NotLeader):
            if self._connections.get(shard) is connection:
                del self._connections[shard]
                connection.close()
            raise

    async def append_again(
        self,
        log: str,
        payloads: Sequence[bytes],
        *,
        topics: Sequence[str] = (),
        shard: int = 0,
        timeout_s: float = 30.0,
    ) -> int:
        """Append as `append`, and again until it is acknowledged: at least once. Raises UnknownLog, AppendRefused,
        ValueError for a shard that the cluster does not have, WrongCluster; TimeoutError, which says how often the
        records may be in the log."""
        unknown, is_waiting, reason = 0, False, "there was no answer"
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        connection = await self._connection(shard, log)
                        message = Append(next(self._numbers), log, [*topics], [*payloads])
                        is_waiting = True
                        return await self._append(connection, shard, message)
                    except (AppendRefused, WrongCluster):
                        raise
                    except (ClusterError, NotLeader, StorageFull, QueueFull, OSError) as error:
                        unknown += isinstance(error, AppendUnknown)
                        reason = f"{error}" or type(error).__name__
                    is_waiting = False
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            what = "1 record was" if len(payloads) == 1 else f"{len(payloads)} records were"
            raise TimeoutError(
                f"log {log}: {what} not acknowledged within {timeout_s:g} s; attempts "
                f"that may be in the log: {unknown + is_waiting}; {reason}"
            ) from None

    async def close(self) -> None:
        """Close all connections. What waits raises AppendUnknown."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def _connection(self, shard: int, log: str) -> "_Connection":
        async with self._lock:
            found = self._connections.get(shard)
            if found is None or found.is_closed:
                found = self._connections[shard] = await self._connected(shard, log)
            return found

    async def _connected(self, shard: int, log: str) -> "_Connection":
        pairs = (await self._etcd.read(self._keys.prefix)).pairs
        cluster = cluster_of(pairs, self._keys)
        if self._keys.log(log) not in pairs:
            known = tuple(sorted(below(pairs, self._keys.log(""))))
            raise UnknownLog(log, known, f"cluster {self._keys.name!r}")
        check_shard(shard, cluster.shards)
        found = pairs.get(self._keys.shard(shard))
        record = ShardRecord.decode(found.value) if found is not None else None
        leader = record.leader if record is not None else None
        node = pairs.get(self._keys.node(node_of(leader))) if leader is not None else None
        if record is None or node is None:
            raise NotLeader(f"shard {shard} has no leader now")
        host, port = parse_address(NodeValue.decode(node.value).peer, setting="peer")
        async with asyncio.timeout(_DIAL_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=self._context)
        give_up_early(writer)
        send(writer, *encoded(Hello(cluster.id, "")))
        connection = _Connection(reader, writer)
        connection.start(self._look(shard, record.generation, connection))
        return connection

    async def _look(self, shard: int, generation: int, connection: "_Connection") -> None:
        """End a connection whose leader does not answer and has been replaced: it may be suspended, or cut off."""
        while True:
            oldest = connection.oldest
            await asyncio.sleep(_LOOK_S)
            if oldest is None or oldest != connection.oldest:
                continue
            with suppress(ClusterError):
                found = (await self._etcd.read(self._keys.shard(shard))).pairs.get(self._keys.shard(shard))
                if found is not None and ShardRecord.decode(found.value).generation > generation:
                    return connection.close()


class _Connection:
    """Connection to one node."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._waiting: dict[int, asyncio.Future[Appended]] = {}
        self.is_closed = False
        self._tasks: list[asyncio.Task[None]] = []
        self.start(self._read())

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run something until the connection is closed."""
        self._tasks.append(asyncio.get_running_loop().create_task(coroutine))

    @property
    def oldest(self) -> int | None:
        """Return the number of the append that waits the longest."""
        return next(iter(self._waiting), None)

    async def append(self, shard: int, message: Append) -> int:
        if self.is_closed or self._writer.transport.is_closing():
            raise NotLeader("the connection has ended")
        answered: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self._waiting[message.number] = answered
        try:
            self._writer.writelines(encoded(message, shard))
            answer = await answered
        finally:
            self._waiting.pop(message.number, None)
        if answer.is_unknown:
            raise AppendUnknown(answer.error)
        if answer.is_refused:
            raise AppendRefused(answer.error)
        if answer.error:
            error = error_of(answer.refusal, answer.error)
            raise error if isinstance(error, StorageFull | QueueFull) else NotLeader(answer.error)
        return answer.first

    async def _read(self) -> None:
        try:
            while True:
                _, message = await read_message(self._reader)
                one = self._waiting.get(message.number) if isinstance(message, Appended) else None
                if one is not None and not one.done() and isinstance(message, Appended):
                    one.set_result(message)
        except (OSError, asyncio.IncompleteReadError, UndecodableFrame):
            pass
        finally:
            self.close()

    def close(self) -> None:
        self.is_closed = True
        self._writer.transport.abort()
        for one in self._waiting.values():
            if not one.done():
                one.set_exception(AppendUnknown("the connection ended before the answer"))
        for task in self._tasks:
            if asyncio.current_task() is not task:
                task.cancel()
