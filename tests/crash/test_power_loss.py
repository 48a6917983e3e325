"""The power fails after each single operation of small workloads, and no promise is broken.

Short by default; a soak run checks more images of each moment and more crashes during recovery:

    TIMESTONE_POWER_LOSS_IMAGES=20 TIMESTONE_SEED=random pytest tests/crash/test_power_loss.py
"""

import errno
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.crash_oracle import Promises, check_store
from tests.support.faulty_files import FaultyFiles
from tests.support.power_loss import Disk, Image, Loss, images
from tests.support.recording_files import RecordingFiles
from tests.support.seeds import rounds, run_seed, told_on_failure
from tests.support.step_clock import NEXT_BOOT_ID, StepClock
from tests.support.workload import Attempt, Workload, crash_config
from timestone.config import Ack
from timestone.store import Store
from timestone.writing import segment_writer

pytestmark = pytest.mark.crash

IMAGES = rounds(1, "TIMESTONE_POWER_LOSS_IMAGES")
"""Images of each kind of loss at each moment."""
LOSSES = list(Loss)
NESTED_EVERY = rounds(101, "TIMESTONE_POWER_LOSS_NESTED_EVERY")
"""At every n-th image the recovery itself is interrupted, after each of its operations: some fifty images more."""


def appends_one_by_one(work: Workload) -> None:
    for ack in (Ack.SYNCED, Ack.WRITTEN, Ack.WRITTEN, Ack.SYNCED, Ack.WRITTEN):
        work.append(ack, size=300, topic="devices/1")
    work.append(Ack.WRITTEN, size=3000, topic="devices/2")


def appends_batches(work: Workload) -> None:
    work.append_many(Ack.SYNCED, 20, topic="devices/1")
    work.append_many(Ack.WRITTEN, 40, topic="devices/2")
    work.append_many(Ack.SYNCED, 3)
    work.append_many(Ack.WRITTEN, 25, size=700, topic="devices/3")


def rolls_and_seals(work: Workload) -> None:
    for number in range(7):
        work.append_many(
            Ack.SYNCED if number % 3 == 0 else Ack.WRITTEN, 2 + number % 2, topic=f"devices/{number % 3}"
        )
        work.wait_for_seals()


def rolls_without_sealing(work: Workload) -> None:
    for number in range(6):
        work.append_many(
            Ack.SYNCED if number == 2 else Ack.WRITTEN, 2 + number % 2, topic=f"devices/{number}"
        )


def closes_and_reopens(work: Workload) -> None:
    work.append_many(Ack.WRITTEN, 3, topic="devices/1")
    work.reopen()
    work.append(Ack.SYNCED, topic="devices/2")
    work.append_many(Ack.WRITTEN, 5, topic="devices/1")
    work.reopen()
    work.reopen()
    work.append(Ack.WRITTEN)


def dies_and_goes_on(work: Workload) -> None:
    """Each process leaves unsynced records to its successor; readers see them before they are synced."""
    for number in range(3):
        work.append_many(Ack.WRITTEN, 3, topic=f"devices/{number}")
        work.append(Ack.SYNCED if number % 2 else Ack.WRITTEN, topic="devices/0")
        work.append(Ack.WRITTEN, size=700)
        work.die()
    work.sync()
    work.append(Ack.WRITTEN)


def commits_and_configures(work: Workload) -> None:
    for number in range(3):
        work.append(Ack.SYNCED, topic=f"devices/{number}")
        work.commit(number)
        work.configure(1000 + number)
    work.reopen()
    work.commit(3)


def raises_the_ceiling(work: Workload) -> None:
    """By flushes that happen anyway, and by appends that cannot wait for one."""
    for number in range(4):
        work.append_many(Ack.WRITTEN, 3, topic=f"devices/{number}")
        work.append(Ack.SYNCED)
    work.append_many(Ack.WRITTEN, 15)
    work.append_many(Ack.WRITTEN, 2)


def _nothing_fails(files: FaultyFiles) -> None:
    pass


def _fails(operation: str, error: int = errno.EIO, **how: Any) -> Callable[[FaultyFiles], None]:
    def arm(files: FaultyFiles) -> None:
        files.fail(operation, error, **how)

    return arm


def _neither_written_nor_taken_back(files: FaultyFiles) -> None:
    # Operations between the two are not counted by the second.
    files.fail("pwrite", errno.EIO, path=".index", nth=6)
    files.fail("pwrite", errno.EIO, path=".index", nth=6)


def _not_flushed_and_no_room(files: FaultyFiles) -> None:
    files.fail("fdatasync", errno.EIO, path=".segment")
    files.fail("create", errno.ENOSPC, path=".tmp", forever=True)


def goes_on_after_errors(work: Workload) -> None:
    """Any operation may fail: a caller that got "synced" may rely on it, and the others get an error."""
    for number in range(3):
        work.append(Ack.SYNCED, size=300, topic=f"devices/{number}")
        work.append_many(Ack.WRITTEN, 4, topic=f"rooms/{number}")
        work.append_many(Ack.SYNCED, 3, topic="devices/0")
    work.reopen()
    work.append(Ack.SYNCED)
    work.append_many(Ack.WRITTEN, 4)


def dies_of_errors(work: Workload) -> None:
    """Records that one process could not flush must not be reported as durable by the next, even if its own flushes
    succeed."""
    for number in range(3):
        work.append_many(Ack.WRITTEN, 3, topic=f"devices/{number}")
        work.append(Ack.SYNCED, topic="devices/0")
        work.die()
    work.append_many(Ack.SYNCED, 2)


@dataclass(frozen=True, slots=True)
class Run:
    """A workload, the settings of its log, and the faults during it."""

    steps: Callable[[Workload], None]
    settings: dict[str, int] = field(default_factory=dict)
    sealing: bool = True
    sealed_at_open: int = 100
    arm: Callable[[FaultyFiles], None] = _nothing_fails


ROLLING = {"segment_entries": 4}
RUNS: dict[str, Run] = {
    "appends one by one": Run(appends_one_by_one),
    "appends batches": Run(appends_batches),
    "rolls and seals": Run(rolls_and_seals, ROLLING),
    "rolls without sealing": Run(rolls_without_sealing, ROLLING, sealing=False),
    "closes and reopens": Run(closes_and_reopens),
    "commits and configures": Run(commits_and_configures),
    "dies and continues": Run(dies_and_goes_on, sealed_at_open=0),
    "dies and seals at once": Run(dies_and_goes_on, ROLLING),
}
FAILING_RUNS: dict[str, Run] = {
    f"{words}, {kind}": Run(goes_on_after_errors, settings, arm=arm)
    for kind, settings in (("rolling", {"segment_entries": 10}), ("one segment", {}))
    for words, arm in {
        "segment not flushed once": _fails("fdatasync", path=".segment", nth=2),
        "index not flushed once": _fails("fdatasync", path=".index", nth=3),
        "topics not flushed once": _fails("fdatasync", path="/topics", nth=3),
        "nothing flushed any more": _fails("fdatasync", path="-0/", nth=6, forever=True),
        "records not written": _fails("pwrite", errno.ENOSPC, path=".segment", nth=3, written_bytes=100),
        "entries not written": _fails("pwrite", errno.ENOSPC, path=".index", nth=6, written_bytes=70),
        "entries not taken back": _neither_written_nor_taken_back,
        "names not written": _fails("pwrite", errno.ENOSPC, path="/topics", nth=2, written_bytes=7),
        "checkpoint not written": _fails("pwrite", path=".index", nth=4),
        "no room for entries": _fails("reserve", errno.ENOSPC, nth=2),
        "no new segment": _fails("create", errno.EMFILE, path=".segment", nth=2),
        "seal not renamed": _fails("rename", path=".index"),
        "folder not flushed": _fails("sync_directory", path="-0", nth=3),
    }.items()
} | {
    f"dies, {words}": Run(dies_of_errors, sealed_at_open=0, arm=arm)
    for words, arm in {
        "leftovers not flushed": _fails("fdatasync", path=".segment", nth=1),
        "index not flushed": _fails("fdatasync", path=".index", nth=2),
        "no room to seal": _fails("create", errno.ENOSPC, path=".tmp", forever=True),
        "not flushed, no room to copy": _not_flushed_and_no_room,
    }.items()
}


class Crashes:
    """All images of one recorded run, each checked in a separate directory."""

    def __init__(self, recorder: RecordingFiles, attempts: Sequence[Attempt], place: Path, seed: int) -> None:
        self.recorder = recorder
        self.attempts = attempts
        self.place = place
        self.seed = seed
        self.checked = 0

    def moments(self, promises: Promises) -> Iterator[tuple[int, Disk]]:
        """Yield the disk after each operation, and advance `promises` with it."""
        disk = Disk(self.recorder)
        for number, operation in enumerate(self.recorder.operations):
            disk.apply(number, operation)
            promises.note(operation)
            yield number, disk

    def check_all(self, kinds: int) -> None:
        """Check at each moment `kinds` kinds of loss in turn, or all of them in a soak run."""
        promises = Promises()
        for moment, disk in self.moments(promises):
            for loss, _, image in images(disk, self.seed, moment, IMAGES, kinds):
                self._check(image, promises, moment, loss)

    def _check(self, image: Image, promises: Promises, moment: int, loss: Loss) -> None:
        last = self.recorder.operations[max(0, moment - 3) : moment + 1]
        self.checked += 1
        with told_on_failure(TIMESTONE_SEED=self.seed, moment=moment, loss=loss.name, operations=last):
            root = self._write(image)
            at_once = (moment + self.checked) % 2 == 0
            check_store(root, self.attempts, promises, power_lost=loss is not Loss.NOTHING, at_once=at_once)
            shutil.rmtree(root)
            if self.checked % NESTED_EVERY == 0:
                self._check_interrupted_recovery(image, promises, loss)

    def _check_interrupted_recovery(self, image: Image, promises: Promises, first: Loss) -> None:
        """Recover the image under a recorder, and cut the power again after each operation of the recovery."""
        root = self._write(image)
        recorder = RecordingFiles(root)
        config = crash_config(sealed_at_open=self.checked // NESTED_EVERY % 2)
        Store(root, config, files=recorder, clock=StepClock(boot_id=NEXT_BOOT_ID)).close()
        shutil.rmtree(root)
        disk = Disk(recorder)
        for number, operation in enumerate(recorder.operations):
            disk.apply(number, operation)
            loss = LOSSES[number % len(LOSSES)]
            with told_on_failure(recovery_moment=number, recovery_loss=loss.name, operation=operation):
                root = self._write(disk.image(random.Random(f"{self.seed}/{number}"), loss))
                check_store(root, self.attempts, promises, power_lost=True)
                shutil.rmtree(root)

    def _write(self, image: Image) -> Path:
        root = self.place / "image"
        image.write(root)
        return root


def check_run(run: Run, place: Path, seed: int, kinds: int) -> None:
    config = crash_config(sealed_at_open=run.sealed_at_open, **run.settings)
    work = Workload(place / "run" / "store", config, run.sealing, arm=run.arm)
    work.run(run.steps)
    crashes = Crashes(work.recorder, work.attempts, place, seed)
    crashes.check_all(kinds)
    print(f"{crashes.checked} images of {len(work.recorder.operations)} operations, seed {seed}")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", RUNS)
def test_promises_hold_when_the_power_fails_at_any_operation(name: str, quick_directory: Path) -> None:
    check_run(RUNS[name], quick_directory, run_seed(name), 2)


def test_no_offset_is_reused_when_the_power_fails_while_the_ceiling_rises(
    quick_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_writer, "RESERVE_OFFSETS", 12)
    monkeypatch.setattr(segment_writer, "_CEILING_LOW_OFFSETS", 9)
    check_run(Run(raises_the_ceiling), quick_directory, run_seed("ceiling"), 2)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FAILING_RUNS)
def test_promises_hold_when_the_power_fails_after_a_disk_error(name: str, quick_directory: Path) -> None:
    """An operation fails, the store continues or refuses, then the power fails: every "synced" holds."""
    check_run(FAILING_RUNS[name], quick_directory, run_seed(name), 1)
