"""An append on its way: what its caller can wait for."""

import logging
import threading
from collections.abc import Callable

from timestone.config import Ack
from timestone.disk.signal_safe_event import Flag
from timestone.kernel.entries import ENTRY_BYTES
from timestone.writing.write_batch import Draft

_LOGGER = logging.getLogger("timestone")
_OBJECTS_BYTES = 1024
"""What a submission of any size takes in Python objects, roughly; so empty drafts are bounded as well."""


class Submission:
    """The fate of one submitted draft. Resolved exactly once: `offsets` or `error` is set, then `done` is
    called.

    offsets: the offsets of its records once they are written; empty before. With ack level `memory` the
    submission is resolved before that, and a later failure is only logged."""

    __slots__ = ("_done", "_event", "_lock", "ack", "draft", "error", "offsets", "resolved")

    def __init__(self, draft: Draft, ack: Ack, done: "Callable[[Submission], None] | None") -> None:
        self.draft = draft
        self.ack = ack
        self.offsets = range(0)
        self.error: Exception | None = None
        self.resolved = False
        self._done = done
        self._event: Flag | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        if self.error is not None:
            state = f"failed: {self.error}"
        else:
            state = f"offsets [{self.offsets.start}, {self.offsets.stop})" if self.resolved else "on its way"
        return f"<Submission of {self.draft.count} records at level {self.ack}: {state}>"

    @property
    def memory_bytes(self) -> int:
        """What it takes until it is written."""
        return self.draft.size_bytes + self.draft.count * ENTRY_BYTES + _OBJECTS_BYTES

    def resolve(self, error: Exception | None = None) -> None:
        """The level is reached, or never will be. Called by the engine; again, if a Ctrl-C came in between."""
        with self._lock:
            if not self.resolved:
                self.error, self.resolved = error, True
            elif error is not None:
                _LOGGER.error(
                    "%d records acknowledged at level %s are lost: %s", self.draft.count, self.ack, error
                )
                return
            event = self._event
        if event is not None:
            event.set()
        done, self._done = self._done, None  # once; and nothing between the two that Ctrl-C could cut
        if done is not None:
            try:
                done(self)
            except Exception:
                # A caller's mistake must not end the thread that everybody's acks come from.
                _LOGGER.exception("the `done` of a submission raised")

    def wait(self, timeout_s: float | None = None) -> range:
        """Block until the level is reached; returns the offsets. Raises the error of the append, or
        TimeoutError."""
        with self._lock:
            if not self.resolved and self._event is None:
                self._event = Flag()
            event = self._event
        if event is not None and not event.wait(timeout_s):
            raise TimeoutError(f"the append was not {self.ack} within {timeout_s} s")
        if self.error is not None:
            raise self.error
        return self.offsets
