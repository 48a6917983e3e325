"""Clock that counts the time that has provably passed since a store was created, by which records expire.

Deletion is final, and a wall clock can be wrong by any amount and at any start: a board without a battery begins in
1970 or at the date of its image, a date is mistyped, a time server is wrong. Neither the clock itself nor the records
show it. So retention does not use the wall clock. It counts the time since the machine was started, by the clock that
cannot be set, and adds it up over the boots of the machine:

- while the machine runs, time counts in full, whether the store is open or not: the boot id identifies the boot;
- while the machine is off, no time counts. Nothing on the machine can prove how long it was.

So a record is never younger than its counted age, and may be older by as much as the machine was off. After a power
loss or a crash of the machine, the time since the last `state` was written does not count either."""

import json
import secrets
from dataclasses import asdict, dataclass

from timestone.disk.clock import Clock
from timestone.disk.json_document import integer, json_object

UNEXPLAINED_US = 3600 * 1_000_000
"""Difference between wall clock and elapsed time that is reported."""


@dataclass(frozen=True, slots=True)
class ClockState:
    """Readings of one moment, as stored."""

    timeline: int
    """Random number of this count; a new one if the count had to restart at 0."""
    passed_us: int
    uptime_us: int
    boot_id: bytes
    wall_us: int

    def encode(self) -> bytes:
        """Encode a document for `decode`."""
        return json.dumps({**asdict(self), "boot_id": self.boot_id.hex()}).encode()

    @classmethod
    def decode(cls, document: bytes) -> "ClockState":
        """Decode a document. Raises ValueError or TypeError for an invalid one."""
        values = json_object(document)
        timeline, passed_us, uptime_us, wall_us = (
            integer(values.get(name)) for name in ("timeline", "passed_us", "uptime_us", "wall_us")
        )
        return cls(timeline, passed_us, uptime_us, bytes.fromhex(str(values.get("boot_id"))), wall_us)

    def passed_in(self, boot_id: bytes, uptime_us: int) -> int:
        """Return the time that has provably passed at a later moment, of this boot or of another."""
        same_boot = any(boot_id) and boot_id == self.boot_id and uptime_us >= self.uptime_us
        return self.passed_us + (uptime_us - self.uptime_us if same_boot else 0)


class SteadyClock:
    """Microseconds that have provably passed since the store was made. Thread-safe."""

    def __init__(self, clock: Clock, last: ClockState | None) -> None:
        """last: state of an earlier process; None to begin at 0."""
        self._clock = clock
        self._boot_id = clock.boot_id()
        self._began_uptime_us = clock.uptime_us()
        self._began_us = last.passed_in(self._boot_id, self._began_uptime_us) if last else 0
        self.timeline = last.timeline if last else secrets.randbits(63)
        self.unexplained_us = 0
        """How far the wall clock has moved since `last` beyond the time that has provably passed: the system was
        off, or the clock was set. Negative if it was set back."""
        if last is not None:
            passed_us = self._began_us - last.passed_us
            self.unexplained_us = clock.now_us() - last.wall_us - passed_us

    def now_us(self) -> int:
        """Return the proven microseconds since the store was made; never decreases."""
        return self._began_us + max(0, self._clock.uptime_us() - self._began_uptime_us)

    def uptime_us(self) -> int:
        """Return microseconds since the start of the system, for measuring durations."""
        return self._clock.uptime_us()

    def state(self) -> ClockState:
        """Return the readings of this moment, to be stored for the next process."""
        # The uptime last: a later process must not count the time between two readings.
        passed_us, wall_us = self.now_us(), self._clock.now_us()
        return ClockState(self.timeline, passed_us, self._clock.uptime_us(), self._boot_id, wall_us)
