"""The process dies or the power fails after each operation of compaction passes.

No last record of a topic is lost, no record that was removed with its tombstone comes back, none is invented, and no
file is left over.

    TIMESTONE_POWER_LOSS_IMAGES=20 TIMESTONE_SEED=random pytest tests/crash/test_compaction.py
"""

import contextlib
import errno
import os
import shutil
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import timestone
from tests.support.compacted import Appended, append, check
from tests.support.faulty_files import ANY, FaultyFiles, SimulatedKill
from tests.support.power_loss import Disk, Loss, images
from tests.support.recording_files import Noted, RecordingFiles
from tests.support.seeds import rounds, run_seed, told_on_failure
from tests.support.step_clock import BOOT_ID, NEXT_BOOT_ID, START_US, StepClock
from tests.support.waiting import wait_for_seals
from timestone import Log, LogConfig, Store, StoreConfig
from timestone.disk.files import Files

pytestmark = pytest.mark.crash

IMAGES = rounds(1, "TIMESTONE_POWER_LOSS_IMAGES")
ROUNDS = rounds(1, "TIMESTONE_CRASH_ROUNDS")
NEVER_MS = 10**9
HISTORY: list[tuple[str | None, bytes]] = [
    ("a", b"1"), ("b", b"22"), ("a", b"333"), (None, b"free"), ("c", b"5"),
    ("b", b""), ("a", b"7777"), ("d", b"8"), ("c", b""), ("d", b"10"), ("b", b"11"), ("a", b"12"),
]  # fmt: skip


def opened(root: Path, files: Files | None = None, clock: StepClock | None = None) -> Store:
    config = StoreConfig(
        ack="written",  # type: ignore[arg-type]
        min_free_bytes=0,
        sync_interval_ms=NEVER_MS,
        delete_delay_ms=0,
        compact_bytes_per_s=1,
        log=LogConfig(segment_entries=3, compact=True, tombstone_ms=0),
    )
    store = Store(root, config, files=files, clock=clock or StepClock())
    store.maintenance.stop()
    return store


def seal(log: Log) -> None:
    log.roll()
    wait_for_seals(log)


def passes(store: Store, clock: StepClock) -> None:
    """Run two passes: the first removes outdated records, the second the tombstones that this leaves."""
    log = store.log("a")
    for _ in range(2):
        clock.advance(1)
        log.apply_compaction()
        store.deleted_files.unlink_due()


def no_garbage(folder: Path) -> None:
    bases = [path.name.partition(".")[0] for path in folder.iterdir() if path.name != "topics"]
    assert sorted(bases) == sorted(2 * list(set(bases))), "one segment and one index each"


def test_compaction_is_consistent_when_killed_at_each_operation(quick_directory: Path) -> None:
    number, done, outcomes = 0, False, set()
    while not done:
        number += 1
        root, files, clock = quick_directory / f"killed {number}", FaultyFiles(), StepClock()
        store = opened(root, files, clock)
        appended: list[Appended] = []
        append(store.log("a"), appended, *HISTORY)
        seal(store.log("a"))
        files.kill(number)
        with contextlib.suppress(SimulatedKill):
            passes(store, clock)
        done = not files.dead
        files.abandon()
        store.abandon()
        store.documents.close()
        store.open_segments.clear()
        with told_on_failure(operation=number):
            with timestone.view(root) as view:
                check(view.log("a"), appended)
            with opened(root, clock=clock) as again:
                log = again.log("a")
                outcomes.add(len(check(log, appended)))
                assert log.end_offset == len(HISTORY)
                no_garbage(log.folder)
                passes(again, clock)
                assert len(check(log, appended)) == 4
                assert again.scrub() == []
        shutil.rmtree(root)
    assert outcomes >= {12, 5, 4}
    assert number > 40


def rewrites(store: Store, clock: StepClock) -> list[str]:
    """Rewrite segments in every way, twice; return the errors of the disk."""
    log = store.log("a")
    refused: list[str] = []
    for work in 2 * (log.apply_compaction, log.apply_compression):
        clock.advance(1)
        try:
            work()
            store.deleted_files.unlink_due()
        except OSError as error:
            refused.append(str(error))
    return refused


@pytest.mark.timeout(300)
@pytest.mark.parametrize("forever", [False, True], ids=["once", "without end"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_compaction_is_consistent_when_any_operation_fails(
    error: int, forever: bool, quick_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The old files are still served, the error names a file, and after the cause is gone the work completes and leaves
    no file; another process sees no difference at any time."""
    number, hits = 0, 1
    while hits:
        number += 1
        root, files, clock = quick_directory / f"failed {number}", FaultyFiles(), StepClock()
        with told_on_failure(operation=number), opened(root, files, clock) as store:
            log = store.log("a")
            log.configure(compression="zstd")
            appended: list[Appended] = []
            append(log, appended, *[(topic, payload * 300) for topic, payload in HISTORY])
            seal(log)
            fault = files.fail(ANY, error, nth=number, forever=forever)
            for refused in rewrites(store, clock):
                assert str(root) in refused, "it names its file"
            check(log, appended)
            with timestone.view(root) as view:
                check(view.log("a"), appended)
            hits = fault.hits
            fault.lift()
            assert rewrites(store, clock) == []
            assert len(check(log, appended)) == 4
            append(log, appended, ("a", b"after"))
            assert store.scrub() == []
        with told_on_failure(operation=number), opened(root) as again:
            check(again.log("a"), appended)
            no_garbage(again.log("a").folder)
        shutil.rmtree(root)
        caplog.clear()  # logged errors keep the objects of their frames open
    assert number > 50


@pytest.mark.timeout(600)
def test_compaction_is_consistent_when_the_power_fails_at_any_operation(quick_directory: Path) -> None:
    root = quick_directory / "run" / "store"
    root.mkdir(parents=True)
    recorder, clock = RecordingFiles(root), StepClock()
    store = opened(root, recorder, clock)
    appended: list[Appended] = []
    log = store.log("a")
    append(log, appended, *HISTORY[:6])
    seal(log)
    recorder.note(6)
    passes(store, clock)
    append(log, appended, *HISTORY[6:])
    seal(log)
    recorder.note(len(HISTORY))
    passes(store, clock)
    store.close()
    seed, checked, disk, durable = run_seed("compaction"), 0, Disk(recorder), 0
    image = quick_directory / "image"
    for number, operation in enumerate(recorder.operations):
        disk.apply(number, operation)
        if isinstance(operation, Noted):
            durable = operation.value  # sealed, so flushed
        for loss, _, left in images(disk, seed, number, IMAGES):
            with told_on_failure(TIMESTONE_SEED=seed, moment=number, loss=loss.name, operation=operation):
                left.write(image)
                if (image / "a-0" / "topics").exists():
                    check_image(image, appended, loss, durable)
            shutil.rmtree(image, ignore_errors=True)
            checked += 1
    print(f"{checked} images of {len(recorder.operations)} operations, seed {seed}")


def check_image(root: Path, appended: list[Appended], loss: Loss, durable: int) -> None:
    boot_id = BOOT_ID if loss is Loss.NOTHING else NEXT_BOOT_ID
    with opened(root, clock=(clock := StepClock(START_US, boot_id))) as store:
        log = store.log("a")
        found = check(log, appended, durable=durable)
        assert log.end_offset >= durable
        passes(store, clock)
        check(log, appended, durable=max([durable, *(offset + 1 for offset in found)]))


def test_readers_in_other_processes_see_no_loss_across_passes(quick_directory: Path) -> None:
    """They map the files: no SIGBUS, no torn record, no record twice or out of order, no last record missing."""
    root, seconds, topics = quick_directory / "shared", 1.5 * ROUNDS, 7
    config = StoreConfig(min_free_bytes=0, delete_delay_ms=0)

    def fill(log: Log, count: int) -> None:
        for _ in range(count):
            offset = log.end_offset
            log.append(b"%d" % offset, topic=f"t{offset % topics}", ack="written")

    with Store(root, config) as store:
        fill(store.log("a", config=LogConfig(segment_entries=50, compact=True)), 500)
    # Forked while no thread works: it could hold the lock of an import, and the children would wait permanently. Each
    # reads the store through its own view, writes each round into a file, and continues until it is stopped.
    notes, enough = (
        [quick_directory / f"reader {number}" for number in range(2)],
        quick_directory / "enough",
    )
    readers = [fork(partial(read_again_and_again, root, topics, note, enough)) for note in notes]
    with Store(root, config) as store:
        log = store.log("a")
        end = time.monotonic() + seconds
        passes = 0
        try:
            # A slow machine takes longer until enough passes have been observed.
            while time.monotonic() < end or passes <= 2 or any(rounds_noted(note) <= 3 for note in notes):
                fill(log, 300)
                log.roll()
                passes += log.apply_compaction() > 0
                assert all(os.waitid(os.P_PID, pid, ENDED) is None for pid in readers), "see standard error"
        finally:
            enough.touch()
            statuses = [os.waitpid(pid, 0)[1] for pid in readers]
        assert statuses == [0, 0]
        log.roll()
        with timestone.view(root) as view:
            left = [record.offset for record in view.log("a").reader()]
            assert set(left) >= set(range(log.end_offset - topics, log.end_offset))
            assert len(left) < log.end_offset // 2


ENDED = os.WEXITED | os.WNOHANG | os.WNOWAIT
"""Ask whether a process has ended, and keep its exit status for a later wait."""


def rounds_noted(note: Path) -> int:
    return note.stat().st_size if note.exists() else 0


def read_again_and_again(root: Path, topics: int, note: Path, enough: Path) -> None:
    """Check that every record that is there was appended. Which records remain cannot be checked while appends
    continue: each may have been superseded by one behind the end that this view knows."""
    rounds = 0
    while not enough.exists():
        with timestone.view(root) as view:
            last = -1
            for record in view.log("a").reader(topics=None if rounds % 2 else "#"):
                assert record.offset > last
                last = record.offset
                assert record.payload == b"%d" % record.offset
                assert record.topic == f"t{record.offset % topics}"
        rounds += 1
        note.write_bytes(bytes(rounds))


def fork(run: Callable[[], None]) -> int:
    """Run in a separate process; return its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            run()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return pid
