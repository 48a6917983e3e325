"""Ctrl-C in the middle of an append: the log is whole, what was acknowledged is there, and the next append works, or
says why not.

An interrupt between two steps that belong together left a log whose memory and files were a record apart: reads raised
IndexError, and what was appended next lay at another offset than was said. Now such a log fails until it is reopened.

And one in the locks of the standard library's executor, which are taken in Python code, left them taken: the next
append that was to be synced waited for ever. Now nothing that an append waits for is locked in Python code.
"""

import random
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

import timestone
from tests.support.seeds import rounds, run_seed, told_on_failure
from timestone import LogConfig, StoreConfig
from timestone.inspection import EXIT_CLEAN, inspect_store

pytestmark = pytest.mark.crash

ROUNDS = rounds(60, "TIMESTONE_CRASH_ROUNDS")
CONFIG = StoreConfig(min_free_bytes=0, sync_interval_ms=20, log=LogConfig(segment_entries=50))


class Interrupted(KeyboardInterrupt):
    """Ours: a real one ends the test run."""


@pytest.fixture
def interrupts() -> Iterator[list[int]]:
    """The signals so far. Python swallows what is raised while it cleans up behind an object."""
    seen: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        raise Interrupted

    before = signal.signal(signal.SIGPROF, interrupt)
    yield seen
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("ack", ["written", "synced"])
def test_interrupted_appends_leave_the_log_whole(ack: str, interrupts: list[int], tmp_path: Path) -> None:
    seed = run_seed(f"interrupts {ack}")
    rng, root = random.Random(seed), tmp_path / "store"
    acked: dict[int, int] = {}
    number = 0
    with told_on_failure(TIMESTONE_SEED=seed):
        store, reopened = timestone.open(root, config=CONFIG), 0
        log = store.log("a")
        for _ in range(ROUNDS):
            before = len(interrupts)
            try:
                signal.setitimer(signal.ITIMER_PROF, rng.uniform(0.0002, 0.004))
                while len(interrupts) == before:
                    number += 1
                    offset = log.append(b"%d" % number, topic=f"t/{number % 100}", ack=ack)
                    acked[number] = offset
            except Interrupted:
                signal.setitimer(signal.ITIMER_PROF, 0)
            if log.failure is not None:  # it was in the middle of a write
                assert "interrupted" in str(log.failure)
                assert len(log.read(log.start_offset)), "reads go on"
                store.close()
                store, reopened = timestone.open(root, config=CONFIG), reopened + 1
                log = store.log("a")
        check([int(record.payload) for record in log.reader("earliest")], acked, number)
        store.close()
        with timestone.open(root, config=CONFIG) as store:
            assert store.recoveries == ()
            check([int(record.payload) for record in store.log("a").reader("earliest")], acked, number)
    print(f"{ROUNDS} interrupts, {reopened} of them in the middle of a write, seed {seed}")
    assert inspect_store(root, deep=True).exit_code == EXIT_CLEAN
    assert len(acked) > ROUNDS


def check(found: list[int], acked: dict[int, int], last: int) -> None:
    """Every acknowledged record where it was said to be; what was interrupted may be there, once, in its place."""
    assert found == sorted(set(found))
    assert all(found[offset] == number for number, offset in acked.items())
    assert not found or found[-1] <= last
