import threading
from concurrent.futures import ThreadPoolExecutor

from mqtt_front.runtime.thread_work import ThreadWork
from tests.support.manual_loop import ManualLoop


def fail() -> str:
    raise OSError("no disk")


def test_result_and_error_of_a_thread_arrive_in_the_loop() -> None:
    loop, outcomes, threads = ManualLoop(), list[str | Exception](), list[str]()
    work = ThreadWork(loop)

    def then(outcome: str | Exception) -> None:
        outcomes.append(outcome)
        threads.append(threading.current_thread().name)

    with ThreadPoolExecutor(1, "disk") as executor:
        assert work.run(executor, lambda: threading.current_thread().name, then)
        assert work.run(executor, fail, then)
        loop.run_until(lambda: len(outcomes) == 2)
    name, error = outcomes
    assert isinstance(name, str) and name.startswith("disk") and isinstance(error, OSError)
    assert threads == [threading.current_thread().name] * 2


def test_work_is_refused_when_the_executor_is_shut_down() -> None:
    loop, outcomes = ManualLoop(), list[str | Exception]()
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    assert not ThreadWork(loop).run(executor, lambda: "done", outcomes.append)
    loop.settle()
    assert outcomes == []
