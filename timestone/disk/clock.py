"""The one clock of the engine, and the boot that it runs in. Tests replace both."""

import time
from pathlib import Path

_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock:
    """The real clock of the machine."""

    def now_us(self) -> int:
        """Microseconds since 1970; at least 1, because an index entry with timestamp 0 is no entry."""
        return max(1, time.time_ns() // 1000)

    def uptime_us(self) -> int:
        """Microseconds since some moment in the past, by a clock that nobody sets; where the system has one, it
        continues while the machine sleeps."""
        return time.clock_gettime_ns(_UPTIME) // 1000

    def boot_id(self) -> bytes:
        """16 bytes that change with every boot of the machine; zeros where the system does not tell, which
        recovery takes as "another boot"."""
        try:
            text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
            return bytes.fromhex(text.strip().replace("-", ""))
        except (OSError, ValueError):
            return bytes(16)
