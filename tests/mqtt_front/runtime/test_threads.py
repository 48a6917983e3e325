"""Threads of a front: at the end, writes that have begun are finished, and reads that have not are not done."""

import threading

from mqtt_front.runtime.threads import Threads


def test_writes_are_finished_and_waiting_reads_are_not_done_when_threads_end() -> None:
    threads, gate = Threads(), threading.Event()
    done: list[str] = []
    held = [threads.read.submit(gate.wait, 10) for _ in range(2)]
    waiting = threads.read.submit(done.append, "read")
    first = threads.save.submit(gate.wait, 10)
    second = threads.save.submit(done.append, "write")
    threads.end()
    gate.set()
    assert [one.result(10) for one in (*held, first)] == [True] * 3
    second.result(10)
    assert waiting.cancelled()
    assert done == ["write"]
