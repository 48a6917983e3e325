"""An event that an interrupt cannot break.

`threading.Event` and `Condition` take their locks in Python code. A Ctrl-C between two steps of that leaves the lock
taken permanently, and then the thread that sets the event waits without end, and all acknowledgements with it. Here
each step is one call into C, which happens or does not.
"""

import threading


class Flag:
    """Set or not; others can wait until it is. Any thread may use it."""

    __slots__ = ("_unset",)

    def __init__(self) -> None:
        self._unset = threading.Lock()
        """Taken as long as the flag is not set."""
        self._unset.acquire()

    @property
    def is_set(self) -> bool:
        return not self._unset.locked()

    def set(self) -> None:
        """Wake all that wait."""
        try:
            self._unset.release()
        except RuntimeError:
            pass  # it was set already

    def clear(self) -> None:
        """From now on one has to wait again."""
        self._unset.acquire(blocking=False)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until it is set; False when the time is over."""
        most_s = -1 if timeout_s is None else min(max(0.0, timeout_s), threading.TIMEOUT_MAX)
        if not self._unset.acquire(timeout=most_s):
            return False
        self.set()
        return True
