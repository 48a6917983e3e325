"""Every short sequence of operations, and the power fails after each single step on the disk of its last one.

Most bugs of file systems and engines need three operations at most and a crash right after one of them (Mohan et al.,
"Finding Crash-Consistency Bugs with Bounded Black-Box Crash Testing", OSDI 2018); therefore all the short ones. By
default up to two, and a few longer ones; a soak run does all of four:

    TIMESTONE_SEQUENCE_LENGTH=4 pytest tests/crash/test_sequences.py
"""

import itertools
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.crash_oracle import Promises, check_store
from tests.support.power_loss import Disk, Loss
from tests.support.recording_files import Noted
from tests.support.seeds import rounds, run_seed, told_on_failure
from tests.support.workload import Workload, crash_config
from timestone.config import Ack

pytestmark = pytest.mark.crash

LENGTH = rounds(2, "TIMESTONE_SEQUENCE_LENGTH")
"""Length of the sequences that are all tested."""
LONGER = rounds(25, "TIMESTONE_LONGER_SEQUENCES")
"""Number of random sequences of four operations beyond that."""
LOSSES = list(Loss)

OPERATIONS: dict[str, Callable[[Workload], None]] = {
    "append small": lambda work: work.append(Ack.WRITTEN, topic="devices/1"),
    "append large": lambda work: work.append(Ack.WRITTEN, size=5000, topic="devices/2"),
    "append batch": lambda work: work.append_many(Ack.WRITTEN, 3, topic="devices/1"),
    "append synced": lambda work: work.append(Ack.SYNCED, topic="devices/3"),
    "sync": Workload.sync,
    "roll": Workload.roll,
    "reopen": Workload.reopen,
    "die": Workload.die,
    "delete": Workload.delete,
    "compress": Workload.compress,
}


def sequences(seed: int) -> Iterator[tuple[str, ...]]:
    for length in range(1, LENGTH + 1):
        yield from itertools.product(OPERATIONS, repeat=length)
    rng = random.Random(seed)
    for _ in range(LONGER if LENGTH < 4 else 0):
        yield tuple(rng.choices(list(OPERATIONS), k=4))


def check(sequence: tuple[str, ...], place: Path, seed: int) -> int:
    """Run the sequence, and cut the power after each step of the last operation: those of the others belong to shorter
    sequences. Return the number of images checked."""
    work = Workload(place / "run" / "store", crash_config(segment_entries=4, sealed_at_open=0))
    work.start()
    for name in sequence[:-1]:
        OPERATIONS[name](work)
    work.wait_for_seals()
    work.recorder.note("the last one")
    OPERATIONS[sequence[-1]](work)
    work.wait_for_seals()
    end = len(work.recorder.operations)
    work.close()
    disk, promises, checked, begun = Disk(work.recorder), Promises(), 0, False
    for number, operation in enumerate(work.recorder.operations[:end]):
        disk.apply(number, operation)
        promises.note(operation)
        begun = begun or (isinstance(operation, Noted) and operation.value == "the last one")
        if not begun and len(sequence) > 1:
            continue
        loss = LOSSES[(number + len(sequence)) % len(LOSSES)]
        root = place / "image"
        with told_on_failure(TIMESTONE_SEED=seed, moment=number, loss=loss.name, operation=operation):
            disk.image(random.Random(f"{seed}/{sequence}/{number}"), loss).write(root)
            power_lost, at_once = loss is not Loss.NOTHING, number % 2 == 0
            check_store(root, work.attempts, promises, power_lost=power_lost, at_once=at_once)
        shutil.rmtree(root)
        checked += 1
    shutil.rmtree(place / "run")
    return checked


@pytest.mark.timeout(0)
def test_promises_hold_when_the_power_fails_in_every_short_sequence(quick_directory: Path) -> None:
    seed = run_seed("sequences")
    count = images = 0
    for sequence in sequences(seed):
        with told_on_failure(sequence=sequence):
            images += check(sequence, quick_directory, seed)
        count += 1
    print(f"{images} images of {count} sequences, seed {seed}")
    assert count >= len(OPERATIONS) + len(OPERATIONS) ** 2
