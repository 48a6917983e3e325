import threading

from timestone.disk.signal_safe_event import Flag


def test_who_waits_goes_on_when_it_is_set_and_so_does_everybody_after() -> None:
    flag = Flag()
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


def test_time_runs_out() -> None:
    assert not Flag().wait(0.001)
    assert not Flag().wait(-1)


def test_setting_and_clearing_twice_is_fine() -> None:
    flag = Flag()
    flag.set()
    flag.set()
    assert flag.wait()
    flag.clear()
    flag.clear()
    assert not flag.is_set
