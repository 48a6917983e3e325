"""Background work in slices, so that it can be throttled and ended at any moment. Holds the current pass and lets
one thread at a time work on it; the owner decides what a slice does and how long to rest."""

import threading
from collections.abc import Callable, Generator

Slices = Generator[int, None, None]
"""A pass: yields the bytes of each slice. Closed early, it leaves no trace."""


class SlicedPass:
    """One pass after another. Any thread may call; one works at a time."""

    def __init__(self, begin: Callable[[], Slices]) -> None:
        """begin: returns the next pass."""
        self._begin = begin
        self._slices: Slices | None = None
        self._closed = False
        self._lock = threading.Lock()

    @property
    def begun(self) -> bool:
        """Return whether a pass is in progress."""
        return self._slices is not None

    def step(self) -> int | None:
        """Run one slice and return its bytes; None when the pass has ended or was closed. An exception ends the
        pass; the next step begins another."""
        with self._lock:
            if self._closed:
                return None
            slices, self._slices = self._slices or self._begin(), None
            done = next(slices, None)
            if done is not None:
                self._slices = slices
            return done

    def finish(self, slices: Slices | None = None) -> None:
        """Run to the end of the pass, unthrottled. slices: a pass to run instead of the current one."""
        if slices is not None:
            with self._lock:
                self._replace_locked(slices)
        while self.step() is not None:
            pass

    def close(self) -> None:
        """Discard the current pass and begin no other."""
        self._closed = True
        with self._lock:
            self._replace_locked(None)

    def _replace_locked(self, slices: Slices | None) -> None:
        if self._slices is not None:
            self._slices.close()
        self._slices = slices
