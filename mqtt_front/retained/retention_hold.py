"""Pin that keeps retention from deleting retained messages that are only in the log, at the checkpoint of the
documents.

A value is in the log at once and in its document a second later. If the server is killed in between and stays away for
longer than the log keeps its records, the next one must still find the value."""

import time
from collections.abc import Sequence

from mqtt_front.retained.checkpoint import CHECKPOINT_KEY, Place, decode_checkpoint
from timestone.fronts import Documents
from timestone.log import Log
from timestone.reading.named_readers import SPACE, Commitment, ReaderId
from timestone.reading.retention_hold import Pin

READER = "mqtt.retained"
"""Named reader that has the pin, in each log."""
_HELD_BYTES = 256 * 1024 * 1024
"""More than is appended between two checkpoints. Limits the hold of a store whose server has gone for good."""


class HeldDocuments:
    """Documents of retained messages. Each written checkpoint moves the pins after it: they hold too much for a moment
    and never too little. Used by the thread that saves."""

    def __init__(self, documents: Documents, logs: Sequence[Log]) -> None:
        self._documents = documents
        self._logs = {log.key: log for log in logs}

    def items(self, space: str) -> dict[str, bytes]:
        return self._documents.items(space)

    def put_many(self, space: str, items: dict[str, bytes | None]) -> None:
        self._documents.put_many(space, items)
        checkpoint = items.get(CHECKPOINT_KEY)
        if checkpoint is not None:
            self.hold(decode_checkpoint(checkpoint))

    def hold(self, places: dict[str, Place]) -> None:
        """Pin the logs at these places. Raises OSError."""
        now_us = time.time_ns() // 1000
        self._put({key: Commitment(place.offset, now_us, self._pin(key)) for key, place in places.items()})

    def release(self) -> None:
        """Release the pins once the documents hold everything and nothing follows the logs. Raises OSError."""
        self._put(dict.fromkeys(self._logs))

    def _put(self, commitments: dict[str, Commitment | None]) -> None:
        items = {
            ReaderId(log.name, log.partition, READER).key: None if one is None else one.encode()
            for log, one in ((self._logs[key], one) for key, one in commitments.items())
        }
        self._documents.put_many(SPACE, items)

    def _pin(self, key: str) -> Pin:
        # Whole segments are held: at least the one with the checkpoint and the growing one.
        return Pin(max_bytes=2 * self._logs[key].config.segment_bytes + _HELD_BYTES)
