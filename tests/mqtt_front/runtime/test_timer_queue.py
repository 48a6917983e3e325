"""Due items are returned in the order of their time, and cancelled ones take no memory."""

from hypothesis import given
from hypothesis import strategies as st

from mqtt_front.runtime.timer_queue import TimerQueue


def test_due_items_are_returned_once_in_order() -> None:
    schedule: TimerQueue[str] = TimerQueue()
    for item, due in (("late", 30.0), ("early", 10.0), ("next", 20.0), ("moved", 5.0), ("off", 15.0)):
        schedule.set(item, due)
    schedule.set("moved", 25.0)
    schedule.call_off("off")
    schedule.call_off("an unknown item")
    assert schedule.take(9.9) == []
    assert schedule.take(20.0) == ["early", "next"]
    assert len(schedule._entries) == 2
    assert schedule.take(99.0) == ["moved", "late"]
    assert schedule.take(99.0) == [] and not schedule._heap


def test_cancelled_items_do_not_accumulate() -> None:
    schedule: TimerQueue[int] = TimerQueue()
    for number in range(100):
        schedule.set(-number, 1e9)
    for number in range(1, 20_000):
        schedule.set(number, 1e9 + number)
        schedule.call_off(number)
    for due in range(20_000):
        schedule.set(0, 2e9 + due)
    assert len(schedule._heap) < 2000
    assert len(schedule.take(3e9)) == 100


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20))), st.integers(0, 20))
def test_timer_queue_equals_a_dictionary_of_times(steps: list[tuple[int, int]], now: int) -> None:
    schedule: TimerQueue[int] = TimerQueue()
    times: dict[int, int] = {}
    for item, due in steps:
        if due == 0:
            schedule.call_off(item)
            times.pop(item, None)
        else:
            schedule.set(item, due)
            times[item] = due
    due_now = {item for item, due in times.items() if due <= now}
    taken = schedule.take(now)
    assert set(taken) == due_now and len(taken) == len(due_now)
    assert [times[item] for item in taken] == sorted(times[item] for item in taken)
