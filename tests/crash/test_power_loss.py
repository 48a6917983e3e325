"""The power fails after each single operation of small workloads, and nothing that was promised is lost.

Short by default; a soak run looks at more images of each moment and at more crashes during recovery:

    TIMESTONE_POWER_LOSS_IMAGES=20 TIMESTONE_SEED=random pytest tests/crash/test_power_loss.py
"""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.crash_oracle import Promises, check_store
from tests.support.power_loss import Disk, Image, Loss
from tests.support.recording_files import RecordingFiles
from tests.support.seeds import rounds, run_seed, told_on_failure
from tests.support.step_clock import NEXT_BOOT_ID, StepClock
from tests.support.workload import Content, Workload, crash_config
from timestone.config import Ack
from timestone.store import Store

pytestmark = pytest.mark.crash

IMAGES = rounds(1, "TIMESTONE_POWER_LOSS_IMAGES")
"""Images of each unkind sort at each moment."""
NESTED_EVERY = rounds(29, "TIMESTONE_POWER_LOSS_NESTED_EVERY")
"""At every so-manieth image the recovery itself is interrupted, after each of its operations."""


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


WORKLOADS: dict[str, tuple[Callable[[Workload], None], dict[str, int], bool]] = {
    "appends one by one": (appends_one_by_one, {}, True),
    "appends batches": (appends_batches, {}, True),
    "rolls and seals": (rolls_and_seals, {"segment_entries": 4}, True),
    "rolls without sealing": (rolls_without_sealing, {"segment_entries": 4}, False),
    "closes and reopens": (closes_and_reopens, {}, True),
}


class Crashes:
    """All the images of one recorded run, checked in a directory of their own."""

    def __init__(
        self, recorder: RecordingFiles, contents: dict[int, Content], place: Path, seed: int
    ) -> None:
        self.recorder = recorder
        self.contents = contents
        self.place = place
        self.seed = seed
        self.checked = 0

    def moments(self, promises: Promises) -> Iterator[tuple[int, Disk]]:
        """The disk after each operation; `promises` goes along."""
        disk = Disk(self.recorder)
        for number, operation in enumerate(self.recorder.operations):
            disk.apply(number, operation)
            promises.note(operation)
            yield number, disk

    def check_all(self) -> None:
        promises = Promises()
        for moment, disk in self.moments(promises):
            for loss in Loss:
                for image_number in range(1 if loss in (Loss.NOTHING, Loss.EVERYTHING) else IMAGES):
                    rng = random.Random(f"{self.seed}/{moment}/{loss.name}/{image_number}")
                    self._check(disk.image(rng, loss), promises, moment, loss)

    def _check(self, image: Image, promises: Promises, moment: int, loss: Loss) -> None:
        last = self.recorder.operations[max(0, moment - 3) : moment + 1]
        self.checked += 1
        with told_on_failure(TIMESTONE_SEED=self.seed, moment=moment, loss=loss.name, operations=last):
            root = self._write(image)
            check_store(root, self.contents, promises, power_lost=loss is not Loss.NOTHING)
            shutil.rmtree(root)
            if self.checked % NESTED_EVERY == 0:
                self._check_interrupted_recovery(image, promises, loss)

    def _check_interrupted_recovery(self, image: Image, promises: Promises, first: Loss) -> None:
        """Recover the image under a recorder, and cut the power again after each operation of the recovery."""
        root = self._write(image)
        recorder = RecordingFiles(root)
        Store(root, crash_config(), files=recorder, clock=StepClock(boot_id=NEXT_BOOT_ID)).close()
        shutil.rmtree(root)
        disk = Disk(recorder)
        for number, operation in enumerate(recorder.operations):
            disk.apply(number, operation)
            loss = list(Loss)[number % len(Loss)]
            with told_on_failure(recovery_moment=number, recovery_loss=loss.name, operation=operation):
                root = self._write(disk.image(random.Random(f"{self.seed}/{number}"), loss))
                check_store(root, self.contents, promises, power_lost=True)
                shutil.rmtree(root)

    def _write(self, image: Image) -> Path:
        root = self.place / "image"
        image.write(root)
        return root


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("steps", "settings", "sealing"), WORKLOADS.values(), ids=WORKLOADS.keys())
def test_nothing_promised_is_lost_whenever_the_power_fails(
    steps: Callable[[Workload], None], settings: dict[str, int], sealing: bool, quick_directory: Path
) -> None:
    work = Workload(quick_directory / "run" / "store", crash_config(**settings), sealing)
    steps(work)
    work.close()
    crashes = Crashes(work.recorder, work.contents, quick_directory, run_seed(steps.__name__))
    crashes.check_all()
    print(f"{crashes.checked} images of {len(work.recorder.operations)} operations, seed {crashes.seed}")
