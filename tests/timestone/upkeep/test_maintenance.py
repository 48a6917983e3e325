"""Tasks run when they are due, on a thread that exists only when there is work."""

import threading

import pytest

from tests.support.waiting import TIMEOUT_S, wait_for
from timestone.upkeep.maintenance import Maintenance


def thread_count() -> int:
    return sum(thread.name == "timestone-maintenance" for thread in threading.enumerate())


class Counter:
    """A task that counts its calls and wants to be called again as told."""

    def __init__(self, *again: float | None) -> None:
        self.calls = 0
        self.again = list(again)
        self.called = threading.Semaphore(0)

    def run(self) -> float | None:
        self.calls += 1
        self.called.release()
        return self.again.pop(0) if self.again else None

    def wait(self) -> None:
        assert self.called.acquire(timeout=TIMEOUT_S)


def test_maintenance_has_no_thread_before_the_first_task() -> None:
    before = thread_count()
    maintenance = Maintenance()
    assert thread_count() == before
    maintenance.expect(Counter().run, 1000)
    assert thread_count() == before + 1
    maintenance.stop()
    assert thread_count() == before
    Maintenance().stop()


def test_task_runs_again_as_long_as_it_requests_it() -> None:
    maintenance, task = Maintenance(), Counter(0.001, 0.001, None)
    maintenance.expect(task.run)
    for _ in range(3):
        task.wait()
    maintenance.stop()
    assert task.calls == 3


def test_task_expected_twice_runs_once_at_the_sooner_time() -> None:
    maintenance, task, last = Maintenance(), Counter(), Counter()
    maintenance.expect(task.run, 1000)
    maintenance.expect(task.run, 0.01)
    maintenance.expect(task.run, 1000)
    task.wait()
    maintenance.expect(last.run)
    last.wait()
    maintenance.stop()
    assert task.calls == 1


def test_error_of_a_task_is_logged_and_other_tasks_continue(caplog: pytest.LogCaptureFixture) -> None:
    def failing() -> float | None:
        raise OSError(5, "no luck")

    maintenance, task = Maintenance(), Counter()
    maintenance.expect(failing)
    maintenance.expect(task.run, 0.01)
    task.wait()
    maintenance.stop()
    assert "no luck" in caplog.text


def test_stop_waits_for_the_running_task_and_refuses_more() -> None:
    entered, leave, left = threading.Event(), threading.Event(), threading.Event()
    before = thread_count()

    def slow() -> float | None:
        entered.set()
        if leave.wait(TIMEOUT_S):
            left.set()
        return 0.0

    maintenance = Maintenance()
    maintenance.expect(slow)
    assert entered.wait(TIMEOUT_S)
    stopping = threading.Thread(target=maintenance.stop)
    stopping.start()
    wait_for(lambda: maintenance.stopping)
    assert stopping.is_alive()
    leave.set()
    stopping.join(TIMEOUT_S)
    assert left.is_set()
    maintenance.expect(lambda: pytest.fail("it was stopped"))
    assert thread_count() == before
