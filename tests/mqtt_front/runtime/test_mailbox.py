"""Nothing that is put in is lost or doubled, and the loop is woken once for many."""

import threading

from mqtt_front.runtime.mailbox import Mailbox
from tests.support.manual_loop import ManualLoop


def test_everything_since_the_last_turn_comes_at_once_and_in_order() -> None:
    loop = ManualLoop()
    got: list[list[int]] = []
    mailbox: Mailbox[int] = Mailbox(loop, got.append)
    for number in range(100):
        mailbox.put(number)
    assert loop.wakeup_count == 1
    loop.turn()
    mailbox.put(100)
    loop.turn()
    assert got == [list(range(100)), [100]]


def test_what_is_put_while_delivering_comes_next_time() -> None:
    loop = ManualLoop()
    got: list[list[int]] = []

    def deliver(items: list[int]) -> None:
        got.append(items)
        if items == [1]:
            mailbox.put(2)

    mailbox: Mailbox[int] = Mailbox(loop, deliver)
    mailbox.put(1)
    loop.settle()
    assert got == [[1], [2]]


def test_the_loop_does_not_wake_itself() -> None:
    loop = ManualLoop()
    got: list[list[int]] = []
    mailbox: Mailbox[int] = Mailbox(loop, got.append)
    mailbox.put(1)
    loop.settle()
    mailbox.put(2)
    loop.settle()
    assert got == [[1], [2]]
    assert loop.wakeup_count == 1


def test_it_can_be_emptied_before_the_loop_does_so() -> None:
    loop = ManualLoop()
    got: list[list[int]] = []
    mailbox: Mailbox[int] = Mailbox(loop, got.append)
    mailbox.put(1)
    mailbox.empty()
    mailbox.put(2)
    loop.settle()
    assert got == [[1], [2]]


def test_many_threads_lose_nothing() -> None:
    loop = ManualLoop()
    got: list[tuple[int, int]] = []
    mailbox: Mailbox[tuple[int, int]] = Mailbox(loop, got.extend)

    def put(who: int) -> None:
        for number in range(2000):
            mailbox.put((who, number))

    threads = [threading.Thread(target=put, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    loop.run_until(lambda: len(got) == 8000)
    for thread in threads:
        thread.join()
    for who in range(4):
        assert [number for one, number in got if one == who] == list(range(2000))


def test_after_the_loop_is_closed_items_are_dropped() -> None:
    class Closed(ManualLoop):
        def call_soon_threadsafe(self, callback: object, *args: object) -> None:
            raise RuntimeError("Event loop is closed")

    mailbox: Mailbox[int] = Mailbox(Closed(), lambda items: None)
    mailbox.put(1)


def test_the_loop_is_not_rung_for_what_its_own_thread_will_fetch_but_for_others_it_is() -> None:
    loop = ManualLoop()
    got: list[list[int]] = []
    mailbox: Mailbox[int] = Mailbox(loop, got.append)
    mailbox.empty()
    mailbox.attended = True
    mailbox.put(1)
    loop.settle()
    assert got == []
    mailbox.empty()
    assert got == [[1]]
    other = threading.Thread(target=mailbox.put, args=(2,))
    other.start()
    other.join()
    assert loop.wakeup_count == 1
    loop.settle()
    mailbox.attended = False
    mailbox.put(3)
    loop.settle()
    assert got == [[1], [2], [3]]
