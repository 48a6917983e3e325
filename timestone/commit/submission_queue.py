"""Bounded queue of the submissions of a log that are not written yet, in order.

An event loop submits batches without waiting, so a disk slower than the network would fill the memory. Above the limit
`put` raises QueueFull, and the caller decides what that means for its clients."""

import threading
from collections.abc import Iterator

from timestone.commit.submission import Submission
from timestone.errors import QueueFull
from timestone.kernel.loops import QueuedBytes

_COMBINED_BYTES = 8 * 1024 * 1024
"""Maximum size of batches that are written together: more would only delay the first."""


class SubmissionQueue(QueuedBytes):
    """Queue of one log. Any thread may call `put`; one thread at a time takes submissions out."""

    def __init__(self, log: str, limit_bytes: int) -> None:
        self._log = log
        self._limit_bytes = limit_bytes
        self._waiting: list[Submission] = []
        self._lock = threading.Lock()
        self.queued_bytes = 0

    def put(self, submission: Submission) -> None:
        """Add a submission. Raises QueueFull; an empty queue takes a submission of any size."""
        size_bytes = submission.memory_bytes
        with self._lock:
            if self.queued_bytes and self.queued_bytes + size_bytes > self._limit_bytes:
                raise QueueFull(self._log, self.queued_bytes, self._limit_bytes)
            self.queued_bytes += size_bytes
            self._waiting.append(submission)

    def groups(self) -> Iterator[list[Submission]]:
        """Take out all submissions in groups. A group counts as queued until the next one is requested."""
        while self._waiting:
            group = self._front()
            memory_bytes = sum(submission.memory_bytes for submission in group)
            # A group is removed after it was written, and at once: KeyboardInterrupt may come at any call.
            try:
                yield group
            finally:
                with self._lock:
                    del self._waiting[: len(group)]
                    self.queued_bytes -= memory_bytes

    def _front(self) -> list[Submission]:
        group, size_bytes = [], 0
        for submission in self._waiting:
            group.append(submission)
            size_bytes += submission.write_batch.size_bytes
            if size_bytes >= _COMBINED_BYTES:
                break
        return group

    def fail(self, error: Exception) -> None:
        """Resolve all waiting submissions with an error."""
        for group in self.groups():
            for submission in group:
                submission.resolve(error)
