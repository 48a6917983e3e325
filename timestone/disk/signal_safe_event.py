"""Event that KeyboardInterrupt cannot break.

`threading.Event` and `Condition` take their locks in Python code. KeyboardInterrupt between two steps leaves the
lock taken, and then the thread that sets the event waits forever, and all acknowledgements with it. Here each step
is one atomic call into C."""

import threading


class SignalSafeEvent:
    """Event that is set or not; other threads can wait for it. Thread-safe."""

    __slots__ = ("_unset",)

    def __init__(self) -> None:
        self._unset = threading.Lock()
        """Locked while the event is not set."""
        self._unset.acquire()

    @property
    def is_set(self) -> bool:
        return not self._unset.locked()

    def set(self) -> None:
        """Set the event and wake all waiting threads."""
        try:
            self._unset.release()
        except RuntimeError:
            pass  # it was set already

    def clear(self) -> None:
        """Clear the event."""
        self._unset.acquire(blocking=False)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until the event is set. Return False on timeout."""
        most_s = -1 if timeout_s is None else min(max(0.0, timeout_s), threading.TIMEOUT_MAX)
        if not self._unset.acquire(timeout=most_s):
            return False
        self.set()
        return True
