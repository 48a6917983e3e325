"""Bounds of the queue of submissions that are not yet written."""

import threading
from pathlib import Path

import pytest

import timestone
from tests.support.faulty_files import FaultyFiles
from timestone import QueueFull, WriteBatch
from timestone.commit.submission import Submission
from timestone.commit.submission_queue import SubmissionQueue
from timestone.config import Ack

MIB = 1 << 20


def submission(size: int) -> Submission:
    return Submission(WriteBatch([bytes(size)]), Ack.MEMORY, None)


def test_queue_counts_bytes_and_names_its_bound_when_full() -> None:
    queue = SubmissionQueue("a-0", 3 * MIB)
    queue.put(submission(MIB))
    queue.put(submission(MIB))
    with pytest.raises(QueueFull, match=r"log a-0: 2\d{6} bytes wait .* 3145728 \(queue_bytes\)") as caught:
        queue.put(submission(MIB))
    assert caught.value.queued_bytes == queue.queued_bytes
    assert caught.value.limit_bytes == 3 * MIB


def test_queue_bounds_the_number_of_empty_batches() -> None:
    queue = SubmissionQueue("a-0", 10 * 1024)
    for _ in range(9):
        queue.put(submission(0))
    with pytest.raises(QueueFull):
        queue.put(submission(0))


def test_queue_accepts_a_batch_above_the_bound_when_empty() -> None:
    queue = SubmissionQueue("a-0", 10)
    queue.put(submission(MIB))
    with pytest.raises(QueueFull):
        queue.put(submission(0))
    list(queue.groups())
    queue.put(submission(MIB))


def test_queue_counts_a_group_until_its_write_ends_or_fails() -> None:
    queue = SubmissionQueue("a-0", 100 * MIB)
    for _ in range(5):
        queue.put(submission(3 * MIB))
    assert [(len(group), queue.queued_bytes // MIB) for group in queue.groups()] == [(3, 15), (2, 6)]
    assert queue.queued_bytes == 0
    queue.put(submission(3 * MIB))
    for _ in queue.groups():
        break  # as an exception would
    assert queue.queued_bytes == 0


def test_failed_submissions_are_resolved_and_no_longer_counted() -> None:
    queue = SubmissionQueue("a-0", 100 * MIB)
    queue.put(waiting := Submission(WriteBatch([b"x"]), Ack.WRITTEN, None))
    queue.fail(OSError("gone"))
    assert str(waiting.error) == "gone"
    assert queue.queued_bytes == 0


def test_submit_at_level_memory_is_refused_and_loses_nothing_while_the_disk_stalls(
    tmp_path: Path,
) -> None:
    """At level memory the caller is answered at once, so nothing told it that the disk was behind."""
    disk = threading.Event()

    class StandingStill(FaultyFiles):
        def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
            if len(data) >= MIB:
                disk.wait(60)
            return super().pwrite(fd, data, position)

    with timestone.open(tmp_path / "data", files=StandingStill(), queue_bytes=4 * MIB) as store:
        log = store.log("a")
        taken = 3
        for _ in range(taken):
            log.submit(WriteBatch([bytes(MIB)]), ack="memory")
        with pytest.raises(QueueFull):
            log.submit(WriteBatch([bytes(MIB)]), ack="memory")
        assert log.queued_bytes > 3 * MIB
        disk.set()
        log.sync()
        assert log.queued_bytes == 0
        assert log.end_offset == taken
        assert log.submit(WriteBatch([bytes(MIB)]), ack="written").wait(10).stop == taken + 1
