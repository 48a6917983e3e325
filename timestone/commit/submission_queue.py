"""What was submitted to a log and is not written yet: in order, and bounded.

An event loop hands drafts over without waiting for anything, so a disk that is slower than the network would fill
the memory. Beyond the bound nothing is taken: the caller decides what that means for its clients."""

import threading
from collections.abc import Iterator

from timestone.commit.submission import Submission
from timestone.errors import QueueFull

_COMBINED_BYTES = 8 * 1024 * 1024
"""Drafts that wait together are written together up to this size: more would only delay the first of them."""


class SubmissionQueue:
    """The queue of one log. `put` may be called by any thread; one at a time takes out and settles."""

    def __init__(self, log: str, limit_bytes: int) -> None:
        self._log = log
        self._limit_bytes = limit_bytes
        self._waiting: list[Submission] = []
        self._lock = threading.Lock()
        self.queued_bytes = 0
        """What waits or is just being written, as memory."""

    def put(self, submission: Submission) -> None:
        """Take a submission in. Raises QueueFull; regardless of its size, one is taken while there is no other."""
        size_bytes = submission.memory_bytes
        with self._lock:
            if self.queued_bytes and self.queued_bytes + size_bytes > self._limit_bytes:
                raise QueueFull(self._log, self.queued_bytes, self._limit_bytes)
            self.queued_bytes += size_bytes
            self._waiting.append(submission)

    def groups(self) -> Iterator[list[Submission]]:
        """Take out everything that waits, neighbours together; a group counts as queued until the next is asked
        for."""
        while self._waiting:
            group = self._front()
            memory_bytes = sum(submission.memory_bytes for submission in group)
            # Nothing is taken out before it is dealt with, and then all at once: Ctrl-C may come at any call.
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
            size_bytes += submission.draft.size_bytes
            if size_bytes >= _COMBINED_BYTES:
                break
        return group

    def fail(self, error: Exception) -> None:
        """Nothing of what waits will ever be written."""
        for group in self.groups():
            for submission in group:
                submission.resolve(error)
