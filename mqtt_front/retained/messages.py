"""Retained messages of one log: of each topic the last record published with RETAIN, until one without a payload clears
it. A view of the log, kept in memory with its payloads, because retention may have deleted the records. `keeper.py`
updates and stores it."""

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from mqtt_front.runtime.user_share import Tally
from mqtt_front.topics.topic_tree import TopicTree
from timestone.filters import FilterTree, is_wildcard
from timestone.kernel.entries import ENTRY
from timestone.log import Log
from timestone.reading.batch import Batch

_BATCH_BYTES = 128 * 1024
_FEW_FILTERS = 8
"""Up to so many filters with wildcards are searched one by one."""


UNOWNED = "\0\0"
"""Owner of messages without a known publisher: of other processes, and of versions that did not store it. Equal to no
user, because user names have no U+0000."""


class RetainedMessage(NamedTuple):
    """Retained record, with all that its delivery needs."""

    offset: int
    timestamp_us: int
    topic: str
    flags: int
    block: bytes
    """Its header block."""
    payload: bytes
    owner: str = UNOWNED
    """The owner whose limits apply (`Shares.owner`)."""

    @property
    def size_bytes(self) -> int:
        """Return its size for the limit on bytes."""
        return len(self.topic) + len(self.block) + len(self.payload)


class RetainedMessages:
    """Retained messages of one log. Event-loop thread only."""

    def __init__(self, log: Log, *, is_view: bool = False) -> None:
        """is_view: another server leads the log, and numbers its topics."""
        self.log = log
        self._is_view = is_view
        self.position = 0
        """First offset of the log that is not taken into account."""
        self.counts = Tally()
        """Number of messages by owner."""
        self.sizes = Tally()
        """Their bytes by owner."""
        self.catch_up: Callable[[], bool] = lambda: not self.lagging
        """Takes appended records into account; false if that has to wait for the disk. Set by `Retaining`."""
        self.waiting: list[Callable[[], None]] = []
        """Callbacks for the end of that wait."""
        self._by_offset: dict[int, RetainedMessage] = {}
        self._offsets: dict[str, int] = {}
        self._tree = TopicTree()

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def lagging(self) -> bool:
        """Return whether records are not taken into account yet."""
        return self.position < self.log.end_offset

    def get(self, topic: str) -> RetainedMessage | None:
        """Return the retained message of a topic."""
        offset = self._offsets.get(topic)
        return None if offset is None else self._by_offset[offset]

    def put(self, message: RetainedMessage) -> None:
        """Retain a message in place of the current one of its topic."""
        self.remove(message.topic)
        self._by_offset[message.offset] = message
        self._offsets[message.topic] = message.offset
        self._tree.add(message.topic)
        self.counts.add(message.owner)
        self.sizes.add(message.owner, message.size_bytes)

    def remove(self, topic: str) -> bool:
        """Remove the retained message of a topic; return False if there was none."""
        offset = self._offsets.pop(topic, None)
        if offset is None:
            return False
        message = self._by_offset.pop(offset)
        self.counts.add(message.owner, -1)
        self.sizes.add(message.owner, -message.size_bytes)
        self._tree.remove(topic)
        return True

    def may_match(self, filters: Iterable[str]) -> bool:
        """Return False if no message matches any of the filters. Filters with wildcards are not searched if there are
        many."""
        if not self._offsets:
            return False
        wild = []
        for one in filters:
            if one in self._offsets:
                return True
            if is_wildcard(one):
                wild.append(one)
        return len(wild) > _FEW_FILTERS or any(
            next(self._tree.matching(one), None) is not None for one in wild
        )

    def offsets(self, filters: Iterable[str], start: int, until: int) -> list[int]:
        """Return the offsets in [start, until) of messages whose topic matches one of the filters, in order."""
        wild: list[str] = []
        found: set[int] = set()
        for one in filters:
            if is_wildcard(one):
                wild.append(one)
            elif (offset := self._offsets.get(one)) is not None:
                found.add(offset)
        if len(wild) <= _FEW_FILTERS:
            found.update(self._offsets[topic] for one in wild for topic in self._tree.matching(one))
        else:  # each may match most topics, so each topic is tested once
            tree: FilterTree[None] = FilterTree()
            for one in wild:
                tree.add(one, None)
            found.update(offset for topic, offset in self._offsets.items() if tree.matches_any(topic))
        return sorted(offset for offset in found if start <= offset < until)

    def batch(self, offsets: Sequence[int], following: int) -> Batch:
        """Return the messages at `offsets` that are still retained, as a read of the log would: those that fit in one
        step. following: where to read on if all of them fit."""
        kept: list[RetainedMessage] = []
        size_bytes = 0
        for offset in offsets:
            message = self._by_offset.get(offset)
            if message is None:
                continue  # a newer one exists, which is delivered when it is published
            if self._is_view and self.log.topics.find(message.topic) is None:
                continue  # a copy that begins again, and has no record yet
            if kept and size_bytes + message.size_bytes > _BATCH_BYTES:
                following = offset
                break
            kept.append(message)
            size_bytes += message.size_bytes
        stored = [message.block + message.payload for message in kept]
        lengths = np.array([len(one) for one in stored], dtype=np.uint32)
        entries = np.zeros(len(kept), dtype=ENTRY)
        entries["length"] = lengths
        entries["position"] = np.cumsum(lengths, dtype=np.uint32) - lengths
        entries["timestamp_us"] = [message.timestamp_us for message in kept]
        entries["topic"] = [self.log.topic_id(message.topic) for message in kept]
        entries["header_length"] = [len(message.block) for message in kept]
        entries["flags"] = [message.flags for message in kept]
        return Batch(
            self.log.name,
            self.log.partition,
            self.log.topics,
            offsets=np.array(list(map(operator.attrgetter("offset"), kept)), dtype=np.int64),
            entries=entries,
            data=b"".join(stored),
            next_offset=following,
        )
