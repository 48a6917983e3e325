"""A topic mask equals matching every filter against every topic, without doing all of that."""

import sys
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timestone
from timestone.filters import topic_matches
from timestone.format.topics import TopicDictionary
from timestone.kernel.entries import NO_TOPIC
from timestone.reading.topic_mask import TopicMask

FILTERS = ["a", "a/b", "#", "+", "a/#", "+/b", "$sys/#", "c", *[f"t/{number}" for number in range(20)]]
TOPICS = ["a", "a/b", "b", "c", "$sys/x", "a/b/c", *[f"t/{number}" for number in range(20)]]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> timestone.Log:
    store = timestone.open(tmp_path_factory.mktemp("choice") / "data")
    return store.log("choice")


def wanted(filters: list[str], topic: str | None) -> bool:
    return topic is not None and any(topic_matches(one, topic) for one in filters)


@given(
    st.lists(st.sampled_from(FILTERS), max_size=12),
    st.lists(st.sampled_from([*TOPICS, None]), max_size=30),
    st.booleans(),
)
def test_mask_selects_topics_that_match_a_filter(
    log: timestone.Log, filters: list[str], topics: list[str | None], one_by_one_first: bool
) -> None:
    choice = TopicMask(log.topics, filters)
    for part in (topics[:3], topics):  # twice, with topics that are new the second time
        ids = np.array([NO_TOPIC if one is None else log.topic_id(one) for one in part], dtype=np.uint32)
        expected = [wanted(filters, one) for one in part]
        if one_by_one_first:
            assert [choice.wants(one) for one in ids.tolist()] == expected
        assert choice.mask(ids).tolist() == expected
        assert [choice.wants(one) for one in ids.tolist()] == expected


@pytest.mark.parametrize("plain_count", [8, 9, 30])
def test_topic_selected_by_name_stays_selected_after_wildcards_were_tried(
    tmp_path: Path, plain_count: int
) -> None:
    """With wildcards present, a topic selected by name that was not among the first eight was left out from the second
    batch on."""
    names = [f"d/{number}" for number in range(plain_count)]
    with timestone.open(tmp_path / "data", min_free_bytes=0) as store:
        log = store.log("a")
        choice = TopicMask(log.topics, [*names, "+"])
        ids = [log.topic_id(name) for name in (*names, "x", "d/x")]
        expected = [True] * (plain_count + 1) + [False]
        for _ in range(2):
            assert choice.mask(np.array(ids, dtype=np.uint32)).tolist() == expected
            assert [choice.wants(one) for one in ids] == expected
        reader = log.reader(topics=[*names, "+"])
        for name in 2 * names:
            log.append(b"x", topic=name, ack="written")
            assert [record.topic for record in reader] == [name]


def test_topic_that_is_added_later_is_selected(log: timestone.Log) -> None:
    choice = TopicMask(log.topics, ["later/1", "later/+/x"])
    nothing = np.array([NO_TOPIC, len(log.topics) + 5], dtype=np.uint32)
    assert choice.mask(nothing).tolist() == [False, False]
    ids = np.array(
        [log.topic_id("later/1"), log.topic_id("later/2"), log.topic_id("later/2/x")], dtype=np.uint32
    )
    assert choice.mask(ids).tolist() == [True, False, True]


def test_filters_are_matched_only_against_topics_of_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Story: 4,000 clients with a topic each took 20 seconds to get one message each, because every reader matched
    every topic of the log."""
    tried: list[str] = []

    def counted(topic_filter: str, topic: str) -> bool:
        tried.append(topic)
        return topic_matches(topic_filter, topic)

    monkeypatch.setattr("timestone.reading.topic_mask.topic_matches", counted)
    with timestone.open(tmp_path / "data") as store:
        log = store.log("many")
        ids = np.array([log.topic_id(f"d/{number}") for number in range(1000)], dtype=np.uint32)
        plain, wild = TopicMask(log.topics, ["d/7"]), TopicMask(log.topics, ["d/+"])
        assert plain.mask(ids[5:9]).tolist() == [False, False, True, False]
        assert tried == []
        assert wild.mask(ids[5:9]).all() and wild.mask(ids[5:9]).all()
        assert tried == ["d/5", "d/6", "d/7", "d/8"]


@given(
    st.lists(st.sampled_from(FILTERS), unique=True, max_size=12),
    st.lists(st.lists(st.sampled_from(FILTERS), unique=True, max_size=10), min_size=1, max_size=4),
    st.lists(st.sampled_from([*TOPICS, None]), max_size=30),
)
def test_mask_matches_like_a_new_one_after_filters_are_added_and_removed(
    log: timestone.Log, filters: list[str], changes: list[list[str]], topics: list[str | None]
) -> None:
    choice = TopicMask(log.topics, filters)
    current = dict.fromkeys(filters)
    for change in changes:
        added = [one for one in change if one not in current]
        removed = [one for one in change if one in current]
        choice = choice.changed(added, removed)
        for one in removed:
            del current[one]
        current.update(dict.fromkeys(added))
        ids = np.array([NO_TOPIC if one is None else log.topic_id(one) for one in topics], dtype=np.uint32)
        expected = [wanted(list(current), one) for one in topics]
        assert choice.mask(ids).tolist() == expected
        assert [choice.wants(one) for one in ids.tolist()] == expected


def test_mask_looks_up_only_new_topics_when_many_names_are_missing(tmp_path: Path) -> None:
    """Thousands of filters wait for topics that come one by one."""
    names = [f"d/{number}" for number in range(500)]
    with timestone.open(tmp_path / "data", min_free_bytes=0) as store:
        log = store.log("a")
        choice = TopicMask(log.topics, names)
        looked_up = 0

        def note(frame: FrameType, event: str, argument: object) -> None:
            nonlocal looked_up
            looked_up += event == "call" and frame.f_code in (
                TopicDictionary.find.__code__,
                TopicDictionary.name.__code__,
            )

        ids = [log.topic_id(name) for name in names]
        sys.setprofile(note)
        try:
            found = [choice.wants(topic_id) for topic_id in ids]
        finally:
            sys.setprofile(None)
        assert all(found)
        assert looked_up <= len(names)


def test_mask_tries_no_filter_one_by_one_when_many_have_wildcards(tmp_path: Path) -> None:
    calls: list[int] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        calls[-1] += 1

    with timestone.open(tmp_path / "data", min_free_bytes=0) as store:
        log = store.log("a")
        topic_id = log.topic_id("d/3/x")
        for count in (20, 2000):
            choice = TopicMask(log.topics, [f"d/{number}/+" for number in range(count)])
            calls.append(0)
            sys.setprofile(note)
            try:
                wanted = choice.wants(topic_id)
            finally:
                sys.setprofile(None)
            assert wanted
    assert calls[0] == calls[1]
