"""An append wakes the readers whose topics it carries, once each, with the first offset that concerns them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from timestone.disk.files import Files
from timestone.filters import topic_matches
from timestone.format.identity import LogIdentity
from timestone.format.topics import TopicDictionary, create_topics_file
from timestone.kernel.entries import NO_TOPIC
from timestone.reading.wakeups import Wakeups

NAMES = ["a", "a/b", "d/b", "$s/b", "e"]


class Sleeper:
    """Remembers what it was woken with."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.woken: list[int] = []

    def wake(self, first_offset: int) -> None:
        self.woken.append(first_offset)


@pytest.fixture
def wakeups(quick_directory: Path) -> Iterator[Wakeups]:
    path = quick_directory / "topics"
    create_topics_file(Files(), path, LogIdentity(1, "log", 0, 1))
    topics = TopicDictionary(Files(), path, writable=True)
    for name in NAMES:
        topics.add(name)
    yield Wakeups(topics)
    topics.close()


def publish(wakeups: Wakeups, first_offset: int, topics: list[str | None]) -> dict[str, int]:
    """Publish records of these topics; return the woken readers, with their offsets."""
    ids = [NO_TOPIC if name is None else NAMES.index(name) for name in topics]
    with wakeups.lock:
        woken = wakeups.published(first_offset, ids[0] if len(ids) == 1 else np.array(ids, dtype=np.uint32))
    found = {waiter.name: offset for waiter, offset in woken if isinstance(waiter, Sleeper)}
    assert len(found) == len(woken), "no reader is woken twice"
    return found


def parked(wakeups: Wakeups, name: str, filters: list[str] | None) -> Sleeper:
    sleeper = Sleeper(name)
    wakeups.register(sleeper, filters)
    with wakeups.lock:
        wakeups.park(sleeper)
    return sleeper


def test_append_wakes_matching_readers_with_the_first_matching_offset(wakeups: Wakeups) -> None:
    parked(wakeups, "all", None)
    parked(wakeups, "one", ["d/b"])
    parked(wakeups, "wild", ["+/b"])
    parked(wakeups, "other", ["e"])
    assert publish(wakeups, 100, [None, "a", "d/b", "a/b", "d/b"]) == {"all": 100, "one": 102, "wild": 102}
    assert len(wakeups.parked) == 1
    assert publish(wakeups, 105, ["e"]) == {"other": 105}


def test_woken_reader_is_no_longer_parked(wakeups: Wakeups) -> None:
    parked(wakeups, "all", None)
    assert publish(wakeups, 0, ["a"]) == {"all": 0}
    assert publish(wakeups, 1, ["a"]) == {}


def test_removed_reader_is_not_woken(wakeups: Wakeups) -> None:
    gone, unparked = parked(wakeups, "gone", ["a"]), parked(wakeups, "unparked", None)
    wakeups.unregister(gone)
    wakeups.unpark(unparked)
    assert publish(wakeups, 0, ["a"]) == {}
    assert not wakeups.parked


def test_new_filters_apply_from_the_next_park_on(wakeups: Wakeups) -> None:
    sleeper = parked(wakeups, "sleeper", ["a"])
    assert publish(wakeups, 0, ["a"]) == {"sleeper": 0}
    wakeups.register(sleeper, ["e"])
    with wakeups.lock:
        wakeups.park(sleeper)
    assert publish(wakeups, 1, ["a"]) == {}, "what it wanted before does not wake it"
    assert publish(wakeups, 2, ["a", "e"]) == {"sleeper": 3}


def test_topic_is_matched_again_when_a_reader_parks_later(wakeups: Wakeups) -> None:
    parked(wakeups, "first", ["a"])
    assert publish(wakeups, 0, ["a", "e"]) == {"first": 0}
    parked(wakeups, "second", ["e"])
    parked(wakeups, "third", ["#"])
    assert publish(wakeups, 5, ["e"]) == {"second": 5, "third": 5}


def test_all_readers_are_woken_when_the_log_closes(wakeups: Wakeups) -> None:
    parked(wakeups, "all", None)
    parked(wakeups, "one", ["a"])
    assert sorted(
        (waiter.name, end) for waiter, end in wakeups.wake_all(9) if isinstance(waiter, Sleeper)
    ) == [
        ("all", 9),
        ("one", 9),
    ]
    assert not wakeups.parked


FILTERS = st.sampled_from(["a", "a/#", "+/b", "#", "d/+", "$s/+", "e", "x"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("register"), st.integers(0, 3), st.none() | st.lists(FILTERS, max_size=2)),
        st.tuples(st.just("unregister"), st.integers(0, 3), st.none()),
        st.tuples(
            st.just("publish"),
            st.none(),
            st.lists(st.none() | st.sampled_from(NAMES), min_size=1, max_size=4),
        ),
    ),
    max_size=25,
)


@settings(suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_wakeups_agree_with_matching_each_record_for_each_reader(
    wakeups: Wakeups, steps: list[tuple[str, int, list[Any]]]
) -> None:
    sleepers: dict[int, tuple[Sleeper, list[str] | None]] = {}
    for step, number, what in steps:
        if step == "publish":
            expected = {}
            for sleeper, filters in sleepers.values():
                hits = [at for at, topic in enumerate(what) if _wants(filters, topic)]
                if hits:
                    expected[sleeper.name] = hits[0]
            assert publish(wakeups, 0, what) == expected
            for sleeper, _ in sleepers.values():
                with wakeups.lock:
                    wakeups.park(sleeper)
        elif step == "register":
            sleeper = sleepers[number][0] if number in sleepers else Sleeper(f"sleeper {number}")
            wakeups.register(sleeper, what)
            with wakeups.lock:
                wakeups.park(sleeper)
            sleepers[number] = sleeper, what
        elif number in sleepers:
            wakeups.unregister(sleepers.pop(number)[0])
    for sleeper, _ in sleepers.values():
        wakeups.unregister(sleeper)


def _wants(filters: list[str] | None, topic: str | None) -> bool:
    return filters is None or (topic is not None and any(topic_matches(one, topic) for one in filters))


def test_replacing_waiter_is_woken_for_the_current_filters(wakeups: Wakeups) -> None:
    old, new = parked(wakeups, "old", ["a", "e"]), Sleeper("new")
    assert publish(wakeups, 0, ["a/b"]) == {}
    assert wakeups.replace(old, new, ["e", "+/b"], added=["+/b"], removed=["a"])
    assert publish(wakeups, 1, ["e", "a/b", "a"]) == {}, "it is not parked"
    with wakeups.lock:
        wakeups.park(new)
    assert publish(wakeups, 4, ["a"]) == {}
    assert publish(wakeups, 5, ["a", "a/b", "e"]) == {"new": 6}
    wakeups.unregister(new)
    assert publish(wakeups, 8, ["a", "a/b", "e"]) == {}


def test_replace_does_nothing_when_the_waiter_is_not_registered(wakeups: Wakeups) -> None:
    assert not wakeups.replace(Sleeper("old"), Sleeper("new"), ["a"], added=["a"], removed=[])
    assert publish(wakeups, 0, ["a"]) == {}
