"""Named readers: of a store in its catalogue, and of a cluster in the documents of the shard, so that the next leader
knows where each continues."""

import threading
from collections.abc import Mapping
from typing import cast

from timestone.errors import NotLeader, UnknownLog
from timestone.fronts import ClusterNode, SharedDocuments
from timestone.log import Log
from timestone.reading.named_readers import (
    Commitment,
    Commitments,
    Metadata,
    NamedReaders,
    ReaderId,
    check_commit,
)
from timestone.reading.retention_hold import Pin
from timestone.replication.replicated_log import ReplicatedLog
from timestone.store import Store

SPACE = "flight.readers"
"""Namespace of the documents of a shard; keys and values are those of a store's catalogue."""
LOGS_SPACE = "flight.logs"
"""Namespace of the documents; a key is `<namespace>/<log>-<partition>`, a value the id of the log that is meant there,
if earlier ones of its name were deleted."""


def shard_documents(node: ClusterNode, log: Log) -> SharedDocuments:
    """Return the documents of the shard of a log. Raises NotLeader where another node leads it, OSError."""
    cast(ReplicatedLog, log).check_leads()
    try:
        return node.documents(log.partition)
    except UnknownLog:
        raise NotLeader(f"this node does not serve shard {log.partition} yet") from None


def forget_deleted(node: ClusterNode, log: Log, documents: SharedDocuments, space: str) -> None:
    """Forget what a namespace, whose keys begin with the folder of a log and a slash, has of a log that was deleted: on
    a store that goes with the log, on a cluster it goes before the first use for the next log of the same name. The
    caller holds what it changes the namespace under. Raises NotLeader, OSError."""
    key, mine = f"{space}/{log.folder.name}", b"%016x" % log.id
    known = documents.get(LOGS_SPACE, key)
    if known == mine or (known is None and node.is_first(log)):
        return
    mentioned = [one for one in documents.items(space) if one.startswith(f"{log.folder.name}/")]
    documents.put_many(space, dict.fromkeys(mentioned))
    documents.put_many(LOGS_SPACE, {key: mine})


class Readers:
    """Named readers of all logs. Every method blocks; any thread."""

    def __init__(self, store: Store, node: ClusterNode | None) -> None:
        self._store, self._node = store, node
        self._shards: dict[int, _ShardReaders] = {}
        self._lock = threading.Lock()

    def of(self, log: Log) -> NamedReaders:
        """Return the named readers of a log. On a cluster they are for as long as this node leads without a break: a
        commit raises NotLeader from then on. Raises NotLeader, OSError."""
        if self._node is None:
            return log.named_readers
        documents = shard_documents(self._node, log)
        with self._lock:
            shard = self._shards.get(log.partition)
            if shard is None or shard.documents is not documents:
                shard = self._shards[log.partition] = _ShardReaders(self._store, documents)
            forget_deleted(self._node, log, documents, SPACE)
            return shard.of(log)


class HeldReader:
    """Named reader of one client, which holds its name until `close`."""

    def __init__(self, readers: Readers, log: Log, name: str) -> None:
        """Blocks. Raises InvalidName, ReaderInUse, NotLeader, OSError, CorruptLog."""
        self._log, self._name = log, name
        self._term = cast(ReplicatedLog, log).term if log.is_replicated else None
        self._named = readers.of(log)
        self.committed = self._named.committed(name)
        """When it took its name; None for nothing."""
        self._named.take(name, self)

    def commit(self, offset: int, metadata: str) -> None:
        """Store where a reader of this name continues. Blocks. Raises as `Store.commit_readers`, and NotLeader."""
        self.check()  # else it could be in a log that was made again under the name
        self._named.commit(self._name, offset, None, metadata)

    def check(self) -> None:
        """Raise NotLeader if another node may have given the name away."""
        if self._term is not None:
            log = cast(ReplicatedLog, self._log)
            if not log.leads or log.term != self._term:
                raise NotLeader(f"this replica of {log.folder.name} does not lead any more")

    def close(self) -> None:
        """Free the name."""
        self._named.release(self._name, self)


class _ShardReaders:
    """Named readers of a shard that this node leads. Implements `ReaderStore`."""

    def __init__(self, store: Store, documents: SharedDocuments) -> None:
        self.documents = documents
        self._store, self._commitments = store, Commitments(documents, SPACE)
        self._logs: dict[str, NamedReaders] = {}

    def of(self, log: Log) -> NamedReaders:
        """Return those of one log, the same ones each time."""
        found = self._logs.get(log.name)
        if found is None:
            found = self._logs[log.name] = NamedReaders(log.name, log.partition, self)
        return found

    def readers(self) -> dict[ReaderId, Commitment]:
        """See `Store.readers`."""
        return self._commitments.all()

    def committed(self, reader: ReaderId) -> Commitment | None:
        """See `Store.committed`."""
        return self._commitments.get(reader)

    def commit_readers(
        self, offsets: Mapping[ReaderId, int], *, pin: Pin | None = None, metadata: Metadata | None = None
    ) -> None:
        """See `Store.commit_readers`; on all in-sync replicas when it returns. Raises NotLeader: the outcome is
        unknown then."""
        check_commit(offsets, lambda one: self._store.log(one.log, one.partition, create=False))
        self._commitments.put(offsets, self._store.now_us(), pin, metadata)
