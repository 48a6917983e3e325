"""Ctrl-C during an append: the log is consistent, acknowledged records are kept, and the next append works.

An interrupt between two steps that belong together left a log whose memory and files differed by a record: reads raised
IndexError, and the next append got another offset than it reported. Later such a log failed until it was reopened. Now
unpublished records are dropped, and unsynced ones are rewritten.

An interrupt in the locks of the standard library's executor, which are taken in Python code, left them locked: the next
append at level synced waited permanently. Now no append waits for a lock that is taken in Python code.
"""

import random
import shutil
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import FrameType

import pytest

import timestone
from tests.support.seeds import rounds, run_seed, told_on_failure
from tests.support.waiting import wait_for
from timestone import LogConfig, StoreConfig
from timestone.commit.submission import Submission
from timestone.kernel.entries import NO_TOPIC
from timestone.repair.inspection import EXIT_CLEAN, inspect_store

pytestmark = pytest.mark.crash

ROUNDS = rounds(60, "TIMESTONE_CRASH_ROUNDS")
CONFIG = StoreConfig(min_free_bytes=0, sync_interval_ms=20, log=LogConfig(segment_entries=50))


class Interrupted(KeyboardInterrupt):
    """The interrupt of these tests: a real one ends the test run."""


@pytest.fixture
def interrupts() -> Iterator[list[int]]:
    """Return the signals so far. Python discards exceptions that are raised while it destroys an object."""
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
        store = timestone.open(root, config=CONFIG)
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
            assert log.failure is None
        check([int(record.payload) for record in log.reader("earliest")], acked, number)
        store.close()
        with timestone.open(root, config=CONFIG) as store:  # seals segments that were replaced by new files
            check([int(record.payload) for record in store.log("a").reader("earliest")], acked, number)
    print(f"{ROUNDS} interrupts, seed {seed}")
    assert inspect_store(root, deep=True).exit_code == EXIT_CLEAN
    assert len(acked) > ROUNDS


def check(found: list[int], acked: dict[int, int], last: int) -> None:
    """Check that every acknowledged record is at its offset; an interrupted one may be there, once, in its place."""
    assert found == sorted(set(found))
    assert all(found[offset] == number for number, offset in acked.items())
    assert not found or found[-1] <= last


class Interruption:
    """Raises once, at the n-th point at which the interpreter checks for signals while code of these modules runs:
    where a function begins, and after a call before its result is used."""

    def __init__(self, point: int, modules: str = "timestone.") -> None:
        self._left = point
        self._modules = modules
        self.raised = False

    def __enter__(self) -> None:
        sys.setprofile(self._look)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, _: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event in ("call", "return", "c_return") and module.startswith(self._modules):
            self._left -= 1
            if self._left == 0:
                sys.setprofile(None)
                self.raised = True
                raise Interrupted


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("ack", ["written", "synced"])
def test_append_interrupted_anywhere_takes_effect_completely_or_not_at_all(ack: str, tmp_path: Path) -> None:
    """The log failed until it was reopened, which is inconvenient in a notebook."""
    root, kept, whole, point = tmp_path / "store", list[bytes](), 0, 0
    interrupted = True
    with timestone.open(root, config=CONFIG) as store:
        log = store.log("a", config=LogConfig(segment_entries=7))
        while interrupted:
            point += 1
            batch = [b"%d of %d" % (number, point) for number in range(1 + point % 3)]
            interruption = Interruption(point)
            try:
                with interruption:
                    log.append_many(batch, topic=f"t/{point}", ack=ack)
            except Interrupted:
                pass
            interrupted = interruption.raised
            assert log.failure is None, f"at point {point}"
            if log.end_offset > len(kept):
                kept += batch
                whole += 1
            assert log.append(b"next", ack=ack) == len(kept), f"at point {point}"
            kept.append(b"next")
            assert log.end_offset == len(kept)
        assert [record.payload for record in log.reader("earliest")] == kept
    with timestone.open(root, config=CONFIG) as store:  # seals segments that were replaced by new files
        assert [record.payload for record in store.log("a").reader("earliest")] == kept
    with timestone.open(root, config=CONFIG) as store:
        assert store.recoveries == ()
    assert inspect_store(root, deep=True).exit_code == EXIT_CLEAN
    assert 1 < whole < point, "some of either kind"
    print(f"{point - 1} points")


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_store_closed_after_an_interrupt_is_sealed_like_any_other(tmp_path: Path) -> None:
    """A segment that was being created stayed as an empty file, or an empty pair of them, and `strict` refused it."""
    config = StoreConfig(min_free_bytes=0, sync_interval_ms=10**9, log=LogConfig(segment_entries=3))
    point, interrupted = 0, True
    while interrupted:
        point += 1
        root, kept = tmp_path / str(point), [b"0", b"1", b"2", b"3", b"4"]
        interruption = Interruption(point, "timestone.writing.segment_writer")
        with timestone.open(root, config=config) as store:
            log = store.log("a")
            for payload in kept:
                log.append(payload, ack="written")
            try:
                with interruption:
                    log.append_many([b"5", b"6"], ack="written")
            except Interrupted:
                pass
            interrupted = interruption.raised
            kept += [b"5", b"6"] if log.end_offset > 5 else []
        with timestone.open(root, config=config, recovery="strict") as store:
            assert [record.payload for record in store.log("a").reader("earliest")] == kept, (
                f"at point {point}"
            )
        shutil.rmtree(root)
    assert point > 20


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_waiting_submissions_are_resolved_when_the_writing_thread_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C after the write of submissions of other threads, or after the flush, left them waiting permanently."""
    point, interrupted = 0, True
    with timestone.open(tmp_path / "store", config=CONFIG) as store:
        log = store.log("a")
        log.append(b"first")
        while interrupted:
            point += 1
            told: list[Submission] = []
            with monkeypatch.context() as patched:
                patched.setattr(store.committer, "expect_write", lambda log: None)  # this thread does it
                submitted = [
                    log.submit(
                        timestone.WriteBatch([b"%d of %d" % (number, point)], NO_TOPIC),
                        ack="written" if number % 2 else "synced",
                        done=told.append,
                    )
                    for number in range(5)
                ]
            interruption = Interruption(point)
            try:
                with interruption:
                    log.sync()
            except Interrupted:
                pass
            interrupted = interruption.raised
            log.sync()
            # By this thread, or by one of the background, which may be about to.
            for one in submitted:
                wait_for(partial(told.count, one))
            found = {record.payload: record.offset for record in log.reader("earliest")}
            for number, one in enumerate(submitted):
                if one.error is None:
                    assert one.wait(0) == range(one.offsets.start, one.offsets.start + 1)
                    assert found[b"%d of %d" % (number, point)] == one.offsets.start, f"at point {point}"
                assert told.count(one) == 1, f"at point {point}"
    assert point > 20
