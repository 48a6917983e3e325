"""A pass runs slice by slice, on any thread, and leaves nothing behind when it is abandoned."""

import threading

import pytest

from timestone.upkeep.sliced_pass import SlicedPass, Slices


class Passes:
    """Makes passes of three slices, and notes what becomes of them."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.refused_at: int | None = None

    def begin(self, name: str = "pass") -> Slices:
        self.seen.append(f"{name} begins")
        try:
            for number in range(3):
                if number == self.refused_at:
                    raise OSError("the disk")
                yield number + 1
            self.seen.append("ends")
        finally:
            self.seen.append("is cleaned up")


def test_pass_takes_one_step_per_slice_and_then_the_next_begins() -> None:
    made = Passes()
    passes = SlicedPass(made.begin)
    assert [passes.step() for _ in range(5)] == [1, 2, 3, None, 1]
    assert made.seen == ["pass begins", "ends", "is cleaned up", "pass begins"]
    assert passes.begun


def test_failed_pass_ends_and_the_next_step_begins_another() -> None:
    made = Passes()
    passes = SlicedPass(made.begin)
    passes.step()
    made.refused_at = 1
    with pytest.raises(OSError, match="the disk"):
        passes.step()
    assert not passes.begun
    made.refused_at = None
    assert passes.step() == 1


def test_finish_completes_the_running_pass_or_the_given_one() -> None:
    made = Passes()
    passes = SlicedPass(made.begin)
    passes.step()
    passes.finish()
    assert made.seen == ["pass begins", "ends", "is cleaned up"]
    passes.step()
    del made.seen[:]
    passes.finish(made.begin("another"))
    assert made.seen == ["is cleaned up", "another begins", "ends", "is cleaned up"]


def test_close_cleans_up_and_no_pass_begins_afterwards() -> None:
    made = Passes()
    passes = SlicedPass(made.begin)
    passes.step()
    passes.close()
    passes.close()
    assert made.seen == ["pass begins", "is cleaned up"]
    assert passes.step() is None
    passes.finish()
    assert len(made.seen) == 2


def test_close_waits_for_the_slice_of_another_thread() -> None:
    inside, go_on, seen = threading.Event(), threading.Event(), []

    def slow() -> Slices:
        try:
            inside.set()
            assert go_on.wait(10)
            seen.append("slice")
            yield 1
        finally:
            seen.append("cleaned up")

    passes = SlicedPass(slow)
    worker = threading.Thread(target=passes.step)
    worker.start()
    assert inside.wait(10)
    closer = threading.Thread(target=passes.close)
    closer.start()
    go_on.set()
    worker.join(10)
    closer.join(10)
    assert seen == ["slice", "cleaned up"]
