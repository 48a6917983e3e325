"""A clock that advances only on request, and a machine that can be restarted."""

import threading

from timestone.disk.clock import Clock

START_US = 1_700_000_000_000_000
BOOT_ID = b"before the crash"
NEXT_BOOT_ID = b"after the crash!"


class StepClock(Clock):
    """Advances one microsecond at each reading, so that no two appends have the same time; otherwise by `advance`."""

    def __init__(self, start_us: int = START_US, boot_id: bytes = BOOT_ID) -> None:
        self._now_us = start_us
        self._uptime_us = 0
        self._boot_id = boot_id
        self._lock = threading.Lock()

    def now_us(self) -> int:
        with self._lock:
            self._now_us += 1
            return self._now_us

    def uptime_us(self) -> int:
        with self._lock:
            return self._uptime_us

    def boot_id(self) -> bytes:
        return self._boot_id

    def advance(self, ms: int) -> None:
        """Let time pass."""
        with self._lock:
            self._now_us += ms * 1000
            self._uptime_us += ms * 1000

    def step(self, ms: int) -> None:
        """Set the clock, ahead or back; no time passes."""
        with self._lock:
            self._now_us += ms * 1000

    def reboot(self, boot_id: bytes) -> None:
        """Restart the machine; the wall clock continues at its value."""
        with self._lock:
            self._uptime_us = 0
            self._boot_id = boot_id
