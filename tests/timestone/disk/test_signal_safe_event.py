import threading

from timestone.disk.signal_safe_event import SignalSafeEvent


def test_all_waiters_continue_when_the_event_is_set() -> None:
    flag = SignalSafeEvent()
    waited: list[bool] = []
    threads = [threading.Thread(target=lambda: waited.append(flag.wait(20))) for _ in range(3)]
    for thread in threads:
        thread.start()
    flag.set()
    for thread in threads:
        thread.join()
    assert waited == [True] * 3
    assert flag.wait(0)
    assert flag.is_set


def test_wait_returns_false_after_its_timeout() -> None:
    assert not SignalSafeEvent().wait(0.001)
    assert not SignalSafeEvent().wait(-1)


def test_set_and_clear_may_be_called_twice() -> None:
    flag = SignalSafeEvent()
    flag.set()
    flag.set()
    assert flag.wait()
    flag.clear()
    flag.clear()
    assert not flag.is_set
