"""Submitted batch and its outcome."""

import logging
import threading
from collections.abc import Callable

from timestone.config import Ack
from timestone.disk.signal_safe_event import SignalSafeEvent
from timestone.kernel.entries import ENTRY_BYTES
from timestone.writing.write_batch import WriteBatch

_LOGGER = logging.getLogger("timestone")
_OBJECTS_BYTES = 1024
"""Approximate size of the Python objects of a submission, so that empty batches count against the limit too."""


class Submission:
    """Outcome of one submitted batch. Resolved exactly once: `offsets` or `error` is set, then `done` is called.

    offsets: the offsets of the records once they are written; empty before. At ack level `memory` the submission is
    resolved before that, and a later failure is only logged."""

    __slots__ = (
        "_done", "_event", "_lock", "ack", "error", "offsets", "resolved", "write_batch", "written_ns",
    )  # fmt: skip

    def __init__(
        self, write_batch: WriteBatch, ack: Ack, done: "Callable[[Submission], None] | None"
    ) -> None:
        self.write_batch = write_batch
        self.ack = ack
        self.offsets = range(0)
        self.written_ns = 0
        """When the records were written, by `time.perf_counter_ns`; 0 before."""
        self.error: Exception | None = None
        self.resolved = False
        self._done = done
        self._event: SignalSafeEvent | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        if self.error is not None:
            state = f"failed: {self.error}"
        else:
            state = f"offsets [{self.offsets.start}, {self.offsets.stop})" if self.resolved else "pending"
        return f"<Submission of {self.write_batch.count} records at level {self.ack}: {state}>"

    @property
    def memory_bytes(self) -> int:
        """Memory that it takes until it is written."""
        return self.write_batch.size_bytes + self.write_batch.count * ENTRY_BYTES + _OBJECTS_BYTES

    def resolve(self, error: Exception | None = None) -> None:
        """Set the outcome. Called by the engine; idempotent, so that it can be repeated after KeyboardInterrupt."""
        with self._lock:
            if not self.resolved:
                self.error, self.resolved = error, True
            elif error is not None:
                _LOGGER.error(
                    "%d records acknowledged at level %s are lost: %s",
                    self.write_batch.count,
                    self.ack,
                    error,
                )
                return
            event = self._event
        if event is not None:
            event.set()
        done, self._done = self._done, None  # one bytecode sequence that KeyboardInterrupt does not split
        if done is not None:
            try:
                done(self)
            except Exception:
                # An error of the caller must not end the committer thread.
                _LOGGER.exception("the `done` of a submission raised")

    def wait(self, timeout_s: float | None = None) -> range:
        """Block until the ack level is reached and return the offsets. Raises the error of the append, or
        TimeoutError."""
        if not isinstance(timeout_s, int | float | None):
            raise TypeError(f"invalid timeout_s: expected seconds, got {timeout_s!r:.60}")
        with self._lock:
            if not self.resolved and self._event is None:
                self._event = SignalSafeEvent()
            event = self._event
        if event is not None and not event.wait(timeout_s):
            raise TimeoutError(f"the append was not {self.ack} within {timeout_s} s")
        if self.error is not None:
            raise self.error
        return self.offsets
