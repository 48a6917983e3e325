"""No item is lost or repeated, and the loop is woken once for many."""

import threading

from mqtt_front.runtime.mailbox import Mailbox
from tests.support.manual_loop import ManualLoop


def test_items_since_the_last_turn_are_delivered_together_in_order() -> None:
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


def test_items_put_during_delivery_are_delivered_in_the_next_turn() -> None:
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


def test_put_from_the_loop_does_not_wake_the_loop() -> None:
    loop = ManualLoop()
    got: list[list[int]] = []
    mailbox: Mailbox[int] = Mailbox(loop, got.append)
    mailbox.put(1)
    loop.settle()
    mailbox.put(2)
    loop.settle()
    assert got == [[1], [2]]
    assert loop.wakeup_count == 1


def test_mailbox_can_be_drained_before_the_loop_delivers() -> None:
    loop = ManualLoop()
    got: list[list[int]] = []
    mailbox: Mailbox[int] = Mailbox(loop, got.append)
    mailbox.put(1)
    mailbox.empty()
    mailbox.put(2)
    loop.settle()
    assert got == [[1], [2]]


def test_mailbox_loses_no_item_of_many_threads() -> None:
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


def test_items_are_dropped_after_the_loop_is_closed() -> None:
    class Closed(ManualLoop):
        def call_soon_threadsafe(self, callback: object, *args: object) -> None:
            raise RuntimeError("Event loop is closed")

    mailbox: Mailbox[int] = Mailbox(Closed(), lambda items: None)
    mailbox.put(1)


def test_loop_is_woken_for_items_of_other_threads_only() -> None:
    loop = ManualLoop()
    got: list[list[int]] = []
    mailbox: Mailbox[int] = Mailbox(loop, got.append)
    mailbox.empty()
    mailbox.put(1)
    assert got == [] and loop.wakeup_count == 0
    loop.settle()
    assert got == [[1]]
    other = threading.Thread(target=mailbox.put, args=(2,))
    other.start()
    other.join()
    assert loop.wakeup_count == 1
    loop.settle()
    mailbox.put(3)
    loop.settle()
    assert got == [[1], [2], [3]]
