"""A replicated log in the files of the engine, as far as its interface goes today: a cut writes what is left to another
partition, and a document in the catalogue says which one counts."""

from dataclasses import dataclass

from timestone.config import Ack
from timestone.store import Store
from timestone_cluster.replica_log import ReplicaLog

_DIGITS = 10
_SPACE = "replicas"


@dataclass(frozen=True, slots=True)
class Written:
    """A record as frames carry it: the number of its topic's name, and its bytes."""

    generation: int
    topic: int
    payload: bytes


class EngineReplicaLog:
    """One log of one replica. Offsets are the engine's."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._name = store, name
        self.records: list[Written] = []
        """What the files have, read when they are opened. Readers read the files."""
        self.names: list[str] = []
        self._log = store.log(name, int(store.documents.get(_SPACE, name) or 0))
        self._load()
        if self._log.end_offset != len(
            self.records
        ):  # recovery skips offsets; a replica has them from its leader
            self._rewrite(self.records)

    def _load(self) -> None:
        offset = 0
        while offset < self._log.end_offset:
            batch = list(self._log.read(offset))
            for record in batch:
                if record.offset != offset:
                    return
                generation, payload = int(record.payload[:_DIGITS]), bytes(record.payload[_DIGITS:])
                self.records.append(Written(generation, self._number(record.topic or ""), payload))
                offset += 1
            if not batch:
                return

    def _number(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    @property
    def end(self) -> int:
        return len(self.records)

    def state(self) -> ReplicaLog:
        """Return what the protocol has to know of the log after a start: all that was read is flushed first."""
        log = ReplicaLog()
        names = 0
        for end, record in enumerate(self.records, 1):
            names = max(names, record.topic + 1)
            log.extend(record.generation, end, names)
        self._log.sync()
        log.durable = log.end
        return log

    def new(self, generation: int, topic: str, payload: bytes) -> Written:
        """Return a record under a topic, whose name is added."""
        return Written(generation, self._number(topic), payload)

    def append(self, records: tuple[Written, ...]) -> None:
        """Write records, without a flush."""
        payloads = [b"%0*d" % (_DIGITS, one.generation) + one.payload for one in records]
        topics = [self.names[one.topic] for one in records]
        offsets = self._log.append_many(payloads, topics=topics, ack=Ack.WRITTEN)
        assert offsets.start == len(self.records)
        self.records += records

    def flush(self) -> int:
        """Make everything durable that was written, and return its end."""
        return self._log.sync()

    def cut(self, offset: int, names: int) -> None:
        """Remove the records from an offset on, durably."""
        del self.names[names:]
        self._rewrite(self.records[:offset])

    def _rewrite(self, records: list[Written]) -> None:
        # Also one that a cut had begun before the power failed is not used again.
        partition = 1 + max(number for log, number in self._store.log_names() if log == self._name)
        self._log, self.records = self._store.log(self._name, partition), []
        self.append(tuple(records))
        self._log.sync()
        self._store.documents.put_many(_SPACE, {self._name: b"%d" % partition})

    def read(self, first: int, end: int) -> list[tuple[str, bytes]]:
        """Return topics and payloads from the files or the tail, as readers get them."""
        found: list[tuple[str, bytes]] = []
        while first + len(found) < end:
            batch = self._log.read(first + len(found), max_records=end - first - len(found))
            found += [(record.topic or "", bytes(record.payload)) for record in batch]
        return found
