"""Topics that each owner has created in the logs, over all connections and starts of the server; a log keeps its
topics.

An owner's document in the namespace `mqtt.topics` is a JSON object with `version` (1) and `logs`: by name of each log
its identity, the number of topics, and the bytes of their names. Owners with few topics have none, so that many of them
cost nothing; a kill loses the counts since the last save."""

import json
import logging
from collections.abc import Mapping, Sequence

from mqtt_front.runtime.user_share import Shares, Tally
from timestone.disk.json_document import integer, json_object
from timestone.log import Log

SPACE = "mqtt.topics"
VERSION = 1
SAVED_FROM = 100
"""Topics of one owner in one log from which on they are saved."""
_SAVED_FROM_BYTES = 64 * 1024
_LOG_ID_MAX = (1 << 64) - 1


class TopicUse:
    """Counts of topics by owner. Event-loop thread only."""

    def __init__(self, logs: Sequence[Log], shares: Shares, count_limit: int = 1 << 32) -> None:
        """count_limit: maximum number of topics that one owner may create in a log, besides its share of the log's
        capacity."""
        self._logs = tuple(logs)
        self._shares = shares
        self._count_limit = count_limit
        self._counts = [Tally() for _ in logs]
        self._bytes = [Tally() for _ in logs]
        self._changed: set[str] = set()

    def over(self, owner: str, log: int, count: int, size_bytes: int) -> str | None:
        """Return the setting that forbids an owner so many more topics, of so many bytes together; None if none
        does."""
        counted = self._counts[log].of(owner) + count
        if counted > self._count_limit:
            return "client_topic_count"
        config, shares = self._logs[log].config, self._shares
        named = self._bytes[log].of(owner) + size_bytes
        if counted > shares.of(config.topic_count) or named > shares.of(config.topic_bytes):
            return "user_share_percent"
        return None

    def add(self, owner: str, log: int, count: int, size_bytes: int) -> None:
        """Count new topics of an owner in a log."""
        self._counts[log].add(owner, count)
        self._bytes[log].add(owner, size_bytes)
        if self._counts[log].of(owner) >= SAVED_FROM or self._bytes[log].of(owner) >= _SAVED_FROM_BYTES:
            self._changed.add(owner)

    # Stored state.

    @property
    def changed(self) -> bool:
        """Return whether there are changes to save."""
        return bool(self._changed)

    def changes(self) -> dict[str, bytes]:
        """Return the documents changed since the last call, by owner."""
        changed, self._changed = self._changed, set()
        return {owner: self._document(owner) for owner in changed}

    def _document(self, owner: str) -> bytes:
        logs = {
            log.key: [log.id, counts.of(owner), sizes.of(owner)]
            for log, counts, sizes in zip(self._logs, self._counts, self._bytes, strict=True)
        }
        return json.dumps({"version": VERSION, "logs": logs}, separators=(",", ":")).encode()

    def restore(self, documents: Mapping[str, bytes], complain: logging.Logger) -> None:
        """Restore the counts of an earlier process. Those of a log that no longer exists are dropped."""
        numbers = {(log.key, log.id): number for number, log in enumerate(self._logs)}
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
    """Return count and bytes by name and identity of the log."""
    body = json_object(document)
    if body["version"] != VERSION:
        raise ValueError(f"version {body['version']}; this server reads version {VERSION}")
    return {
        (name, integer(log_id, most=_LOG_ID_MAX)): (integer(count), integer(size_bytes))
        for name, (log_id, count, size_bytes) in body["logs"].items()
    }
