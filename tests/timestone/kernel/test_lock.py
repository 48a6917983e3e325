"""Both locks: the one of the threading module and the compiled one."""

import signal
import threading
from typing import Any

import pytest

from tests.support.waiting import wait_for
from timestone.kernel import loops, pure

LOCKS: list[Any] = list(dict.fromkeys((pure.Lock, loops.Lock)))


@pytest.fixture(params=LOCKS, ids=lambda kind: kind.__module__)
def lock(request: pytest.FixtureRequest) -> Any:
    return request.param()


def test_lock_is_taken_once(lock: Any) -> None:
    assert lock.acquire() and lock.locked()
    assert not lock.acquire(False)
    lock.release()
    assert not lock.locked() and lock.acquire(False)


def test_block_holds_the_lock_until_it_ends_or_raises(lock: Any) -> None:
    with lock:
        assert lock.locked()
    assert not lock.locked()
    with pytest.raises(KeyError), lock:
        raise KeyError
    assert not lock.locked()


def test_release_of_a_lock_that_is_not_held_is_an_error(lock: Any) -> None:
    with pytest.raises(RuntimeError, match="release unlocked lock"):
        lock.release()


def test_thread_waits_until_the_lock_is_released(lock: Any) -> None:
    order: list[str] = []

    def wait() -> None:
        order.append("begins")
        with lock:
            order.append("has it")

    with lock:
        thread = threading.Thread(target=wait)
        thread.start()
        wait_for(lambda: order == ["begins"])
        order.append("released")
    thread.join(10)
    assert order == ["begins", "released", "has it"]


def test_lock_excludes_threads_that_change_the_same_number(lock: Any) -> None:
    total = 0

    def add() -> None:
        nonlocal total
        for _ in range(5_000):
            with lock:
                before = total
                for _ in range(3):
                    pass
                total = before + 1

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert total == 20_000


def test_interrupt_ends_a_wait_for_the_lock(lock: Any) -> None:
    with lock:
        interrupt = threading.Timer(0.2, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            lock.acquire()
    assert not lock.locked()
