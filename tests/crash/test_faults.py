"""Every single operation on the disk fails, once or permanently: no result is wrong, and the store continues when the
cause is gone.

test_power_loss.py tests power losses after such errors.
"""

import errno
import shutil
from pathlib import Path

import pytest

from tests.support.crash_oracle import Promises, check_store
from tests.support.faulty_files import ANY, FaultyFiles
from tests.support.recording_files import RecordingFiles
from tests.support.seeds import told_on_failure
from tests.support.workload import Workload, crash_config
from timestone.config import Ack

pytestmark = pytest.mark.faults

ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EMFILE": errno.EMFILE}


def steps(work: Workload) -> None:
    """Run every operation that changes the disk: append, batch, roll, seal, close, open."""
    for number in range(2):
        work.append(Ack.SYNCED, size=300, topic=f"devices/{number}")
        work.append_many(Ack.WRITTEN, 4, topic=f"devices/{number}")
        work.append_many(Ack.SYNCED, 3, topic="devices/0")
    work.reopen()
    work.append(Ack.SYNCED)
    work.append_many(Ack.WRITTEN, 4)


def promises_of(recorder: RecordingFiles) -> Promises:
    promises = Promises()
    for operation in recorder.operations:
        promises.note(operation)
    return promises


def operation_count(place: Path) -> int:
    whole = Workload(place / "whole", crash_config(segment_entries=6))
    whole.run(steps)
    shutil.rmtree(place / "whole")
    return len(whole.files.calls)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("forever", [False, True], ids=["once", "forever"])
def test_promises_hold_when_any_operation_fails(error: str, forever: bool, quick_directory: Path) -> None:
    """The third, the fourth, the fifth … operation of the run fails. Every acknowledged record is there when the store
    is opened without faults, and no refused one."""
    for number in range(3, operation_count(quick_directory) + 1):

        def arm(files: FaultyFiles, number: int = number) -> None:
            files.fail(ANY, ERRORS[error], nth=number, forever=forever)

        root = quick_directory / "store"
        with told_on_failure(operation=number):
            work = Workload(root, crash_config(segment_entries=6), arm=arm)
            work.run(steps)
            # None where the background had less to do than in the run that was counted.
            with told_on_failure(call=work.files.calls[number - 1 : number]):
                check_store(root, work.attempts, promises_of(work.recorder), power_lost=False)
        shutil.rmtree(root)


@pytest.mark.timeout(600)
def test_appends_work_again_when_the_cause_is_gone(quick_directory: Path) -> None:
    """The disk is full from some operation on, then space is freed: no restart is needed, unless the log has failed."""
    for number in range(1, operation_count(quick_directory) // 2):
        root = quick_directory / "store"
        with told_on_failure(operation=number):
            work = Workload(root, crash_config(segment_entries=6))
            work.start()
            fault = work.files.fail(ANY, errno.ENOSPC, nth=number, forever=True)
            for _ in range(4):
                work.append_many(Ack.WRITTEN, 3, topic="devices/1")
                work.append(Ack.SYNCED)
            fault.lift()
            failed, before = work.log.failure, work.log.end_offset
            work.append(Ack.SYNCED)
            assert (work.log.end_offset == before + 1) == (failed is None), (
                "it works unless it says that it does not"
            )
            work.close()
            check_store(root, work.attempts, promises_of(work.recorder), power_lost=False)
        shutil.rmtree(root)
