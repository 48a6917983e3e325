"""How many topics each owner has brought into the logs, over all connections and starts of the server. A log keeps its
topics.

An owner's document in the space `mqtt.topics` is a JSON object with `version` (1) and `logs`: by name of each log its
identity, how many topics, and the bytes of their names. Owners with few topics have none, so that many of them cost
nothing; a kill forgets what was counted since the last save.
"""

import json
import logging
from collections.abc import Mapping, Sequence

from mqtt_front.runtime.shares import Shares, Tally
from timestone.disk.json_document import integer, json_object
from timestone.log import Log

SPACE = "mqtt.topics"
VERSION = 1
SAVED_FROM = 100
"""Topics of one owner in one log from which on they are saved."""
_SAVED_FROM_BYTES = 64 * 1024
_LOG_ID_MAX = (1 << 64) - 1


class TopicUse:
    """Used by the event loop's thread only."""

    def __init__(self, logs: Sequence[Log], shares: Shares, count_limit: int = 1 << 32) -> None:
        """`count_limit`: the most topics that one owner may bring into a log, besides its share of what the log
        takes."""
        self._logs = tuple(logs)
        self._shares = shares
        self._count_limit = count_limit
        self._counts = [Tally() for _ in logs]
        self._bytes = [Tally() for _ in logs]
        self._changed: set[str] = set()

    def of(self, owner: str, log: int) -> int:
        """How many topics an owner has brought into the log of this number."""
        return self._counts[log].of(owner)

    def over(self, owner: str, log: int, count: int, size_bytes: int) -> str | None:
        """The setting that forbids an owner so many more topics, of so many bytes together; None when none does."""
        counted = self._counts[log].of(owner) + count
        if counted > self._count_limit:
            return "client_topic_count"
        config, shares = self._logs[log].config, self._shares
        named = self._bytes[log].of(owner) + size_bytes
        if counted > shares.of(config.topic_count) or named > shares.of(config.topic_bytes):
            return "user_share_percent"
        return None

    def add(self, owner: str, log: int, count: int, size_bytes: int) -> None:
        """An owner has brought so many topics more into a log."""
        self._counts[log].add(owner, count)
        self._bytes[log].add(owner, size_bytes)
        if self._counts[log].of(owner) >= SAVED_FROM or self._bytes[log].of(owner) >= _SAVED_FROM_BYTES:
            self._changed.add(owner)

    # Across restarts.

    @property
    def changed(self) -> bool:
        """There is something to save."""
        return bool(self._changed)

    def changes(self) -> dict[str, bytes]:
        """The documents that have changed since the last call, by owner."""
        changed, self._changed = self._changed, set()
        return {owner: self._document(owner) for owner in changed}

    def _document(self, owner: str) -> bytes:
        logs = {
            log.name: [log.id, counts.of(owner), sizes.of(owner)]
            for log, counts, sizes in zip(self._logs, self._counts, self._bytes, strict=True)
        }
        return json.dumps({"version": VERSION, "logs": logs}, separators=(",", ":")).encode()

    def restore(self, documents: Mapping[str, bytes], complain: logging.Logger) -> None:
        """Take over what an earlier process left. What was counted for a log that is gone is dropped."""
        numbers = {(log.name, log.id): number for number, log in enumerate(self._logs)}
        for owner, document in documents.items():
            try:
                counted = _decoded(document)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                complain.error("topics of %r are counted from 0: %r", owner[:200], error)
                continue
            for place, (count, size_bytes) in counted.items():
                if (number := numbers.get(place)) is not None:
                    self._counts[number].add(owner, count)
                    self._bytes[number].add(owner, size_bytes)


def _decoded(document: bytes) -> dict[tuple[str, int], tuple[int, int]]:
    """By name and identity of the log: count and bytes."""
    body = json_object(document)
    if body["version"] != VERSION:
        raise ValueError(f"version {body['version']}; this server reads version {VERSION}")
    return {
        (name, integer(log_id, most=_LOG_ID_MAX)): (integer(count), integer(size_bytes))
        for name, (log_id, count, size_bytes) in body["logs"].items()
    }
