"""The power fails after each operation of runs that delete.

The start offset never decreases, offsets continue, and the remaining records are complete.

    TIMESTONE_POWER_LOSS_IMAGES=20 TIMESTONE_SEED=random pytest tests/crash/test_retention.py
"""

import contextlib
import os
import random
import shutil
import signal
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import timestone
from tests.support.faulty_files import FaultyFiles, SimulatedKill
from tests.support.power_loss import Disk, Loss, images
from tests.support.recording_files import Noted, Operation, RecordingFiles
from tests.support.seeds import rounds, run_seed, told_on_failure
from tests.support.step_clock import BOOT_ID, NEXT_BOOT_ID, START_US, StepClock
from tests.support.waiting import wait_for_seals
from timestone import Batch, Log, LogConfig, LogView, OffsetOutOfRange, Store, StoreConfig
from timestone.segment import Segment
from timestone.view import StoreView

pytestmark = pytest.mark.crash

IMAGES = rounds(1, "TIMESTONE_POWER_LOSS_IMAGES")
NESTED_EVERY = rounds(101, "TIMESTONE_POWER_LOSS_NESTED_EVERY")
ROUNDS = rounds(15, "TIMESTONE_CRASH_ROUNDS")
NEVER_MS = 10**9
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Told:
    """The reported state until here: the log starts at `start`, and all records below `synced` are durable."""

    start: int = 0
    synced: int = 0
    shown: int = 0


def payload(offset: int) -> bytes:
    return b"%04d" % offset * (offset % 7)


class Run:
    """A recorded store that deletes only on request."""

    def __init__(self, root: Path, **settings: Any) -> None:
        root.mkdir(parents=True)
        self.root = root
        self.recorder = RecordingFiles(root)
        self.clock = StepClock()
        log = LogConfig(segment_entries=3, **settings)
        self.config = StoreConfig(
            ack="written",  # type: ignore[arg-type]
            sync_interval_ms=NEVER_MS,
            min_free_bytes=0,
            delete_delay_ms=0,
            log=log,
        )
        self.told = Told()
        self._open()

    def _open(self) -> None:
        self.store = Store(self.root, self.config, files=self.recorder, clock=self.clock)
        self.store.maintenance.stop()
        self.log = self.store.log("a")
        self._watch(self.log)

    def _watch(self, log: Log) -> None:
        drop = log.drop

        def drop_and_tell(segments: Sequence[Segment]) -> None:
            drop(segments)
            self._tell()

        log.drop = drop_and_tell  # type: ignore[method-assign]

    def _tell(self) -> None:
        log = self.log
        self.recorder.note(Told(log.start_offset, log.synced_offset, log.end_offset))

    def append(self, count: int, *, sync: bool = True) -> None:
        for _ in range(count):
            self.log.append(payload(self.log.end_offset), ack="synced" if sync else "written")
            self._tell()
        wait_for_seals(self.log)

    def seal(self) -> None:
        self.log.roll()
        wait_for_seals(self.log)

    def expire(self) -> None:
        self.clock.advance(2 * HOUR_MS)
        self.log.apply_retention()
        self._tell()
        self.store.deleted_files.unlink_due()

    def reopen(self) -> None:
        self.store.close()
        self._open()


def by_size(run: Run) -> None:
    run.append(7)
    run.expire()
    run.append(2, sync=False)
    run.append(7)
    run.expire()
    run.reopen()
    run.append(4)
    run.expire()


def emptied_and_filled_again(run: Run) -> None:
    run.append(7)
    run.seal()
    run.expire()
    run.append(1, sync=False)
    run.append(4)
    run.seal()
    run.expire()
    run.reopen()
    run.append(2)
    run.seal()
    run.expire()


def emptied_twice_without_an_append(run: Run) -> None:
    run.append(4)
    run.seal()
    run.expire()
    run.reopen()
    run.expire()
    run.reopen()
    run.append(1)


RUNS: dict[str, tuple[Callable[[Run], None], dict[str, int]]] = {
    "by size": (by_size, {"retention_bytes": 4096 * 2 + 900}),
    "emptied and filled again": (emptied_and_filled_again, {"retention_ms": HOUR_MS}),
    "emptied twice without an append": (emptied_twice_without_an_append, {"retention_ms": HOUR_MS}),
}


def moments(recorder: RecordingFiles) -> Iterator[tuple[int, Operation, Disk, Told]]:
    disk, told = Disk(recorder), Told()
    for number, operation in enumerate(recorder.operations):
        disk.apply(number, operation)
        if isinstance(operation, Noted):
            now = operation.value
            told = Told(*(max(pair) for pair in zip(_values(told), _values(now), strict=True)))
        yield number, operation, disk, told


def _values(told: Told) -> tuple[int, int, int]:
    return told.start, told.synced, told.shown


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", RUNS)
def test_retention_is_consistent_when_the_power_fails_at_any_operation(
    name: str, quick_directory: Path
) -> None:
    steps, settings = RUNS[name]
    run = Run(quick_directory / "run" / "store", **settings)
    steps(run)
    run.store.close()
    seed, checked = run_seed(name), 0
    root = quick_directory / "image"
    for number, operation, disk, told in moments(run.recorder):
        for loss, rng, left in images(disk, seed, number, IMAGES):
            with told_on_failure(TIMESTONE_SEED=seed, moment=number, loss=loss.name, operation=operation):
                left.write(root)
                if root.exists():
                    check_view(root, told, loss)
                    check(root, told, loss)
                    if checked % NESTED_EVERY == 0:
                        check_interrupted(root, left.write, told, rng)
            shutil.rmtree(root, ignore_errors=True)
            checked += 1
    print(f"{checked} images of {len(run.recorder.operations)} operations, seed {seed}")


def check(root: Path, told: Told, loss: Loss) -> None:
    """Check the store as opened by the next owner."""
    boot_id = BOOT_ID if loss is Loss.NOTHING else NEXT_BOOT_ID
    config = StoreConfig(ack="written", min_free_bytes=0, sync_interval_ms=NEVER_MS, delete_delay_ms=NEVER_MS)  # type: ignore[arg-type]
    with Store(root, config, clock=StepClock(START_US, boot_id)) as store:
        store.maintenance.stop()
        if ("a", 0) not in store.log_names():
            assert told == Told()
            return
        log = store.log("a")
        start, end = check_contents(log, told)
        assert start >= told.start
        marker = log.append(payload(end))
        assert marker >= told.shown, f"offset {marker} was shown before"
        if loss is Loss.NOTHING:
            assert marker <= told.shown + 1, "kill -9 leaves no offset out"


def check_view(root: Path, told: Told, loss: Loss) -> None:
    """Check the store as read by another process before any recovery."""
    with StoreView(root) if (root / "catalog.db").exists() else _Nothing() as view:
        if isinstance(view, StoreView) and view.log_names() and (root / "a-0" / "topics").exists():
            log = view.log("a")
            if loss is Loss.NOTHING:
                check_contents(log, told)
                assert log.end_offset >= told.shown
                assert log.start_offset >= told.start


class _Nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def check_contents(log: Log | LogView, told: Told) -> tuple[int, int]:
    """Check that every record from the start on is there, up to the promised end; return the start and the end of the
    records."""
    start = offset = log.start_offset
    while batch := read_or_none(log, offset):
        for record in batch:
            assert record.offset == offset, "a hole"
            assert record.payload == payload(offset)
            offset += 1
        assert batch.next_offset == offset
    if log.start_offset > offset:  # the background has deleted in between
        return check_contents(log, told)
    assert offset >= told.synced or start >= told.synced, f"[{start}, {offset}) lacks what was synced"
    return start, offset


def read_or_none(log: Log | LogView, offset: int) -> Batch | None:
    try:
        return log.read(offset)
    except OffsetOutOfRange as error:
        if error.start <= offset:
            raise
        return None


def check_interrupted(root: Path, write: Callable[[Path], None], told: Told, rng: random.Random) -> None:
    """Interrupt recovery, with the deletions that it finishes, after each of its operations."""
    shutil.rmtree(root)
    write(root)
    recorder = RecordingFiles(root)
    config = StoreConfig(min_free_bytes=0, sync_interval_ms=NEVER_MS)
    store = Store(root, config, files=recorder, clock=StepClock(START_US, NEXT_BOOT_ID))
    store.maintenance.stop()
    store.close()
    disk = Disk(recorder)
    for number, operation in enumerate(recorder.operations):
        disk.apply(number, operation)
        loss = list(Loss)[number % len(Loss)]
        shutil.rmtree(root)
        with told_on_failure(recovery_moment=number, recovery_loss=loss.name, recovery_operation=operation):
            disk.image(rng, loss).write(root)
            check(root, told, Loss.SECTORS)


def test_retention_is_consistent_when_killed_at_each_operation(quick_directory: Path) -> None:
    """The same without a model of the disk: the process stops, and another one opens the real files."""
    number, done = 0, False
    while not done:
        number += 1
        root = quick_directory / f"killed {number}"
        files = FaultyFiles()
        store = Store(
            root,
            StoreConfig(
                ack="written",  # type: ignore[arg-type]
                min_free_bytes=0,
                sync_interval_ms=NEVER_MS,
                log=LogConfig(segment_entries=2, retention_ms=HOUR_MS),
            ),
            files=files,
            clock=(clock := StepClock()),
        )
        store.maintenance.stop()
        log = store.log("a")
        for offset in range(7):
            log.append(payload(offset))
        log.roll()
        wait_for_seals(log)
        clock.advance(2 * HOUR_MS)
        files.kill(number)
        with contextlib.suppress(SimulatedKill):
            log.apply_retention()
        done = not files.dead
        told = Told(log.start_offset, 7, 7)
        files.abandon()
        store.abandon()
        store.documents.close()
        with told_on_failure(operation=number):
            check_view(root, told, Loss.NOTHING)
            check(root, told, Loss.NOTHING)
        shutil.rmtree(root)
    assert number > 8


_STATE = struct.Struct("<QQ")


def append_for_ever(root: Path, pipe: int) -> None:
    """Append and delete as fast as possible; report after each append the start of the log and the written end."""
    store = timestone.open(root, ack="written", min_free_bytes=0, delete_delay_ms=0)
    log = store.log("a", config=LogConfig(segment_entries=3, retention_bytes=30_000))
    while True:
        log.append(payload(log.end_offset))
        os.write(pipe, _STATE.pack(log.start_offset, log.end_offset))


def killed_after(root: Path, seconds: float, *, deleting: bool) -> Told:
    """Return the reports of a process that is killed some time after its first one; `deleting`: not before it has
    deleted."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            append_for_ever(root, writer)
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read(_STATE.size)
        while deleting and _STATE.unpack(said[-_STATE.size :])[0] == 0:
            said += pipe.read(_STATE.size)
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
        said += pipe.read()
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    start, end = list(_STATE.iter_unpack(said[: len(said) // _STATE.size * _STATE.size]))[-1]
    return Told(start, end, end)


@pytest.mark.timeout(0)
def test_retention_is_consistent_when_killed_at_random_moments(quick_directory: Path) -> None:
    seed, root = run_seed("retention kill -9"), quick_directory / "store"
    rng = random.Random(seed)
    told = Told()
    for number in range(ROUNDS):
        with told_on_failure(TIMESTONE_SEED=seed, round=number):
            # On a slow machine, no process may have come that far by the last round.
            said = killed_after(root, rng.uniform(0, 0.15), deleting=number == ROUNDS - 1)
            assert said.start >= told.start
            assert said.shown > told.shown
            told = said
            check_view(root, told, Loss.NOTHING)
            if number % 3 == 0:
                with timestone.open(root, min_free_bytes=0) as store:
                    start, end = check_contents(store.log("a"), told)
                    assert start >= told.start
                    assert end >= told.shown
                    told = Told(start, end, end)
    assert told.start > 0
