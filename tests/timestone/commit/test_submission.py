import threading

import pytest

from timestone.commit.submission import Submission
from timestone.config import Ack
from timestone.writing.write_batch import WriteBatch


def test_wait_returns_the_offsets_once_it_is_resolved() -> None:
    submission = Submission(WriteBatch([b"a"]), Ack.WRITTEN, None)
    found: list[range] = []
    thread = threading.Thread(target=lambda: found.append(submission.wait(10)))
    thread.start()
    submission.offsets = range(5, 6)
    submission.resolve()
    thread.join()
    assert found == [range(5, 6)]
    assert submission.wait(0) == range(5, 6)


def test_wait_raises_the_error_of_the_append_each_time() -> None:
    submission = Submission(WriteBatch([b"a"]), Ack.SYNCED, None)
    submission.resolve(OSError(28, "No space left on device"))
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            submission.wait(0)


def test_wait_raises_timeout_error_with_the_ack_level() -> None:
    submission = Submission(WriteBatch([b"a"]), Ack.SYNCED, None)
    with pytest.raises(TimeoutError, match="synced"):
        submission.wait(0)


@pytest.mark.parametrize("resolved", [False, True])
def test_wait_refuses_a_timeout_that_is_not_a_number(resolved: bool) -> None:
    submission = Submission(WriteBatch([b"a"]), Ack.SYNCED, None)
    if resolved:
        submission.resolve()
    with pytest.raises(TypeError, match=r"^invalid timeout_s: expected seconds, got '1 s'$"):
        submission.wait("1 s")  # type: ignore[arg-type]


def test_submission_repr_shows_its_state() -> None:
    submission, failed = (Submission(WriteBatch([b"a", b"b"]), Ack.SYNCED, None) for _ in range(2))
    assert repr(submission) == "<Submission of 2 records at level synced: pending>"
    submission.offsets = range(5, 7)
    submission.resolve()
    assert repr(submission) == "<Submission of 2 records at level synced: offsets [5, 7)>"
    failed.resolve(OSError(28, "No space left on device"))
    assert repr(failed).endswith(": failed: [Errno 28] No space left on device>")


def test_submission_keeps_its_first_resolution() -> None:
    calls: list[Submission] = []
    submission = Submission(WriteBatch([b"a"]), Ack.MEMORY, calls.append)
    submission.resolve()
    submission.resolve(OSError("too late"))
    assert submission.error is None
    assert calls == [submission]


def test_done_callback_runs_once_when_many_threads_resolve() -> None:
    for _ in range(50):
        calls: list[Submission] = []
        submission = Submission(WriteBatch([b"a"]), Ack.MEMORY, calls.append)
        threads = [threading.Thread(target=submission.resolve) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(calls) == 1


def test_done_callback_may_wait_on_its_submission() -> None:
    found: list[range] = []
    submission = Submission(WriteBatch([b"a"]), Ack.WRITTEN, lambda one: found.append(one.wait(0)))
    submission.offsets = range(3, 4)
    submission.resolve()
    assert found == [range(3, 4)]
