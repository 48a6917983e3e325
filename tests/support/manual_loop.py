"""An event loop that a test turns manually: nothing happens between two turns, and time passes on request."""

import collections
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.support.waiting import TIMEOUT_S


class ManualTimer:
    """A call that is due at a time of the loop's clock."""

    def __init__(self, when: float, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.when = when
        self.callback = callback
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualLoop:
    """The calls of a loop that the front uses. Other threads may call `call_soon_threadsafe`; the rest is for the
    test."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[ManualTimer] = []
        self.wakeup_count = 0
        self._calls: collections.deque[tuple[Callable[..., Any], tuple[Any, ...]]] = collections.deque()
        self._changed = threading.Condition()

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> None:
        self._calls.append((callback, args))

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any) -> None:
        with self._changed:
            self.wakeup_count += 1
            self._calls.append((callback, args))
            self._changed.notify()

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> ManualTimer:
        timer = ManualTimer(self.now + delay, callback, args)
        self.timers.append(timer)
        return timer

    def turn(self) -> None:
        """Run everything that is due now, but not the calls that this schedules."""
        for _ in range(len(self._calls)):
            callback, args = self._calls.popleft()
            callback(*args)

    def run_until(self, done: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
        """Turn until `done`, waiting for other threads in between."""
        deadline = time.monotonic() + timeout_s
        while not done():
            with self._changed:
                self._changed.wait_for(lambda: bool(self._calls), timeout=0.05)
            self.turn()
            assert time.monotonic() < deadline, "what the test waits for did not happen"

    def settle(self) -> None:
        """Turn until this thread has no work left."""
        while self._calls:
            self.turn()

    def pass_time(self, seconds: float) -> None:
        """Run the timers of the next `seconds`, in order."""
        end = self.now + seconds
        while due := [timer for timer in self.timers if timer.when <= end and not timer.cancelled]:
            first = min(due, key=lambda timer: timer.when)
            self.timers.remove(first)
            self.now = max(self.now, first.when)
            first.callback(*first.args)
            self.settle()
        self.now = end
