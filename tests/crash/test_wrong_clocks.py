"""Machines whose wall clock is wrong at any start, for any time, by any amount, and jumps while they run.

Retention never deletes a record that is younger than the retention by true time, and deletes on time by the time that
the machine was running.

    TIMESTONE_CLOCK_ROUNDS=2000 TIMESTONE_SEED=random pytest tests/crash/test_wrong_clocks.py
"""

import random
from pathlib import Path

import pytest

import timestone
from tests.support.faulty_files import FaultyFiles
from tests.support.seeds import rounds, run_seed, told_on_failure
from timestone import Log, LogConfig, Store
from timestone.disk.clock import Clock
from timestone.upkeep.retention import NOTE_EVERY_US

pytestmark = pytest.mark.crash

ROUNDS = rounds(12, "TIMESTONE_CLOCK_ROUNDS")
STEPS = 60
SECOND_US = 1_000_000
HOUR_US = 3600 * SECOND_US
DAY_US = 24 * HOUR_US
WRONG_US = (0, HOUR_US // 2, 2 * HOUR_US, 2 * DAY_US, 400 * DAY_US, 3650 * DAY_US)
BEGAN_US = 1_700_000_000 * SECOND_US


class Machine(Clock):
    """True time, and the readings of a machine's clocks."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.true_us = BEGAN_US
        self.ran_us = 0
        """Total running time of the machine."""
        self._wrong_us = 0
        self._booted_us = self.true_us
        self._boot_id = rng.randbytes(16)

    def now_us(self) -> int:
        return max(1, self.true_us + self._wrong_us)

    def uptime_us(self) -> int:
        return self.true_us - self._booted_us

    def boot_id(self) -> bytes:
        return self._boot_id

    def run(self, time_us: int) -> None:
        self.true_us += time_us
        self.ran_us += time_us

    def restart(self, off_us: int) -> None:
        self.true_us += off_us
        self._booted_us = self.true_us - self._rng.randrange(60 * SECOND_US)
        self._boot_id = self._rng.randbytes(16)

    def set_clock(self) -> None:
        """Set the wall clock, right in half of the cases."""
        sign = self._rng.choice((-1, 1))
        self._wrong_us = sign * self._rng.choice(WRONG_US) if self._rng.random() < 0.5 else 0

    def begin_in_1970(self) -> None:
        self._wrong_us = -self.true_us


class Life:
    """A store on such a machine, and the true age of each of its records."""

    def __init__(self, path: Path, rng: random.Random) -> None:
        self.rng = rng
        self.path = path
        self.machine = Machine(rng)
        self.retention_us = rng.choice((HOUR_US, DAY_US, 30 * DAY_US))
        self.appended: dict[int, int] = {}
        """The true time of each append, by offset, of the remaining records."""
        self.files = FaultyFiles()
        self.open()

    def open(self) -> None:
        self.store: Store = timestone.open(
            self.path,
            ack="written",
            min_free_bytes=0,
            delete_delay_ms=10**9,
            files=self.files,
            clock=self.machine,
        )
        self.store.maintenance.stop()
        config = LogConfig(segment_entries=5, retention_ms=self.retention_us // 1000)
        self.log: Log = self.store.log("a", config=config)
        self.check()

    def step(self) -> None:
        rng = self.rng
        match rng.randrange(7):
            case 0 | 1 | 2:
                self.run(rng.randrange(self.retention_us // 2))
            case 3:
                self.machine.set_clock()
            case 4:
                self.store.close()
                if rng.random() < 0.5:
                    self.machine.run(rng.randrange(self.retention_us))
                self.open()
            case 5:
                self.store.close()
                self.start_machine()
            case 6:
                if rng.random() < 0.5:
                    self.store.sealer.settle()
                self.files.abandon()
                self.store.abandon()
                self.store.documents.close()
                self.files = FaultyFiles()
                self.start_machine()

    def start_machine(self) -> None:
        self.machine.restart(self.rng.randrange(3 * self.retention_us))
        if self.rng.random() < 0.3:
            self.machine.begin_in_1970()
        else:
            self.machine.set_clock()
        self.open()

    def run(self, time_us: int) -> None:
        """Let the machine run; append from time to time, and run retention as often as the background would."""
        slice_us = max(NOTE_EVERY_US, self.retention_us // 50)
        for _ in range(min(20, time_us // slice_us + 1)):
            for _ in range(self.rng.randrange(3)):
                self.appended[self.log.append(b"x")] = self.machine.true_us
            self.machine.run(slice_us)
            self.check()

    def check(self) -> None:
        self.log.apply_retention()
        self.store.sealer.settle()  # of the segments that were rolled
        start = self.log.start_offset
        for offset in [offset for offset in self.appended if offset < start]:
            age_us = self.machine.true_us - self.appended.pop(offset)
            assert age_us >= self.retention_us, f"deleted at the age of {age_us / HOUR_US} hours"

    def check_that_all_goes(self) -> None:
        """Check that no record stays for longer than twice the retention of running time, and the cost of each power
        loss."""
        slice_us = max(NOTE_EVERY_US, self.retention_us // 50)
        end = self.log.end_offset
        late_us = 2 * self.retention_us + self.retention_us // 16 + 2 * slice_us
        began_us = self.machine.ran_us
        while self.log.start_offset < end:
            assert self.machine.ran_us - began_us <= late_us
            self.machine.run(slice_us)
            self.check()


@pytest.mark.timeout(0)
def test_retention_deletes_nothing_young_and_all_that_is_old_when_clocks_are_wrong(
    quick_directory: Path,
) -> None:
    seed = run_seed("wrong clocks")
    deleted = 0
    for number in range(ROUNDS):
        rng = random.Random(f"{seed}/{number}")
        with told_on_failure(TIMESTONE_SEED=seed, round=number):
            life = Life(quick_directory / str(number), rng)
            for _ in range(STEPS):
                life.step()
            deleted += life.log.start_offset
            life.check_that_all_goes()
            life.store.close()
    assert deleted > 0, "some of it in the middle of a life"
