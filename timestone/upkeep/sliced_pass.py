"""Work in the background that is done a slice at a time, so that it can be slowed down, and ended at any moment.

What belongs here: which pass is going on, and that one thread at a time works on it. What a slice does, and how long
to rest after it, is up to whoever has the pass."""

import threading
from collections.abc import Callable, Generator

Slices = Generator[int, None, None]
"""A pass: does a slice for each value, the bytes it went through. Closed in the middle, it leaves no trace."""


class SlicedPass:
    """One pass after another. Any thread may call; one works at a time."""

    def __init__(self, begin: Callable[[], Slices]) -> None:
        """begin: makes the next pass."""
        self._begin = begin
        self._slices: Slices | None = None
        self._closed = False
        self._lock = threading.Lock()

    @property
    def begun(self) -> bool:
        """A pass is in the middle."""
        return self._slices is not None

    def step(self) -> int | None:
        """One slice, its bytes; None when the pass is over, or all of it was closed. An exception ends the pass: the
        next step begins another."""
        with self._lock:
            if self._closed:
                return None
            slices, self._slices = self._slices or self._begin(), None
            done = next(slices, None)
            if done is not None:
                self._slices = slices
            return done

    def finish(self, slices: Slices | None = None) -> None:
        """Go through to the end of the pass, as fast as it goes; of this one, when given, in the place of what was
        begun."""
        if slices is not None:
            with self._lock:
                self._replace_locked(slices)
        while self.step() is not None:
            pass

    def close(self) -> None:
        """Leave what is half done, and begin nothing any more."""
        self._closed = True
        with self._lock:
            self._replace_locked(None)

    def _replace_locked(self, slices: Slices | None) -> None:
        if self._slices is not None:
            self._slices.close()
        self._slices = slices
