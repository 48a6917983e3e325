"""Clock and boot id of the system. Tests replace both."""

import time
from pathlib import Path

from timestone.kernel import loops

_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock:
    """System clock."""

    now_us = staticmethod(loops.now_us)

    def uptime_us(self) -> int:
        """Return microseconds since an arbitrary moment, by a clock that cannot be set and, where the system has
        one, includes sleep."""
        return time.clock_gettime_ns(_UPTIME) // 1000

    def boot_id(self) -> bytes:
        """Return 16 bytes that change with every boot; zeros if unknown, which recovery treats as another boot."""
        try:
            text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
            return bytes.fromhex(text.strip().replace("-", ""))
        except (OSError, ValueError):
            return bytes(16)
