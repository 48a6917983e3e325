"""What is due comes in the order of its time, and what was called off takes no room."""

from hypothesis import given
from hypothesis import strategies as st

from mqtt_front.runtime.timer_queue import Schedule


def test_what_is_due_comes_once_and_in_order() -> None:
    schedule: Schedule[str] = Schedule()
    for item, due in (("late", 30.0), ("early", 10.0), ("next", 20.0), ("moved", 5.0), ("off", 15.0)):
        schedule.set(item, due)
    schedule.set("moved", 25.0)
    schedule.call_off("off")
    schedule.call_off("nobody knows it")
    assert schedule.take(9.9) == []
    assert schedule.take(20.0) == ["early", "next"]
    assert len(schedule) == 2
    assert schedule.take(99.0) == ["moved", "late"]
    assert schedule.take(99.0) == [] and schedule.held_count == 0


def test_what_is_called_off_again_and_again_does_not_fill_the_memory() -> None:
    schedule: Schedule[int] = Schedule()
    for number in range(100):
        schedule.set(-number, 1e9)
    for number in range(1, 20_000):
        schedule.set(number, 1e9 + number)
        schedule.call_off(number)
    for due in range(20_000):
        schedule.set(0, 2e9 + due)
    assert schedule.held_count < 2000
    assert len(schedule.take(3e9)) == 100


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20))), st.integers(0, 20))
def test_it_behaves_like_a_dictionary_of_times(steps: list[tuple[int, int]], now: int) -> None:
    schedule: Schedule[int] = Schedule()
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
