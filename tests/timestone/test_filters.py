"""Topic filters of MQTT 5 section 4.7, and a tree of many filters that agrees with matching them one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timestone.errors import InvalidName
from timestone.filters import (
    FilterTree,
    is_wildcard,
    topic_matches,
    validate_filter,
    validate_topic,
    validate_topics,
)

# The examples of MQTT 5, 4.7.1 to 4.7.3, and their edges.
MATCHES = [
    ("sport/tennis/player1/#", "sport/tennis/player1"),
    ("sport/tennis/player1/#", "sport/tennis/player1/ranking"),
    ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon"),
    ("sport/#", "sport"),
    ("#", "sport"),
    ("#", "/"),
    ("sport/tennis/+", "sport/tennis/player1"),
    ("sport/+", "sport/"),
    ("+/+", "/finance"),
    ("/+", "/finance"),
    ("+", "finance"),
    ("+/tennis/#", "sport/tennis/player1"),
    ("sport/+/player1", "sport/tennis/player1"),
    ("sport/+/+/#", "sport//"),
    ("$SYS/#", "$SYS/broker/load"),
    ("$SYS/+", "$SYS/load"),
    ("a//b", "a//b"),
    ("a/+/b", "a//b"),
    ("é/ü", "é/ü"),
    ("+/$SYS", "a/$SYS"),
]
MISSES = [
    ("sport/tennis/+", "sport/tennis/player1/ranking"),
    ("sport/tennis/+", "sport/tennis"),
    ("sport/+", "sport"),
    ("+", "/finance"),
    ("#", "$SYS/broker"),
    ("+/monitor/Clients", "$SYS/monitor/Clients"),
    ("+/#", "$SYS/load"),
    ("sport", "Sport"),
    ("sport", "sport/"),
    ("sport/", "sport"),
    ("sport/#", "sports"),
    ("a/b", "a"),
    ("a", "a/b"),
    ("a/#/b", "a/b"),
]


@pytest.mark.parametrize(("topic_filter", "topic"), MATCHES)
def test_filter_matches(topic_filter: str, topic: str) -> None:
    assert topic_matches(topic_filter, topic)


@pytest.mark.parametrize(("topic_filter", "topic"), MISSES[:-1])
def test_filter_does_not_match(topic_filter: str, topic: str) -> None:
    assert not topic_matches(topic_filter, topic)


@pytest.mark.parametrize("topic", ["a", "/", "//", "a b", "$x", "é" * 100, "x" * 65_535])
def test_topic_is_valid(topic: str) -> None:
    validate_topic(topic)
    validate_filter(topic)


BAD_TOPICS = ["", "a/+", "+", "#", "a/#", "a+b", "a\0b", "x" * 65_536, "é" * 32_768, "\ud800"]


@pytest.mark.parametrize("topic", BAD_TOPICS, ids=lambda topic: ascii(topic[:10]))
def test_topic_is_refused(topic: str) -> None:
    with pytest.raises(InvalidName):
        validate_topic(topic)
    for topics in ([topic], ["a", topic], [topic, "a"]):
        with pytest.raises(InvalidName):
            validate_topics(topics)


def test_list_of_topics_is_valid_when_each_topic_is() -> None:
    validate_topics([])
    validate_topics(["a", "/", "a b", "$x", "é" * 100, "x" * 65_535, "a\x01"])


@pytest.mark.parametrize("topic_filter", ["#", "+", "+/#", "/#", "a/+/b/#", "/", "+/+"])
def test_filter_is_valid(topic_filter: str) -> None:
    validate_filter(topic_filter)
    assert is_wildcard(topic_filter) == ("+" in topic_filter or "#" in topic_filter)


BAD_FILTERS = ["", "a#", "a/#/b", "#/a", "##", "a/b+", "+a/b", "++", "a\0/#", "\ud800/#", "x" * 65_536]


@pytest.mark.parametrize("topic_filter", BAD_FILTERS, ids=lambda topic: ascii(topic[:10]))
def test_filter_is_refused(topic_filter: str) -> None:
    with pytest.raises(InvalidName):
        validate_filter(topic_filter)


LEVELS = st.sampled_from(["", "a", "b", "$c", "aa"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=5).map("/".join).filter(bool)
FILTERS = st.builds(
    lambda levels, rest: "/".join(levels + rest),
    st.lists(LEVELS | st.just("+"), max_size=4),
    st.sampled_from([[], ["#"]]),
).filter(bool)


@pytest.mark.slow
@given(
    st.lists(FILTERS, max_size=12), st.lists(FILTERS, max_size=6), st.lists(TOPICS, min_size=1, max_size=6)
)
def test_tree_finds_the_same_filters_as_matching_one_by_one(
    filters: list[str], removed: list[str], topics: list[str]
) -> None:
    tree: FilterTree[str] = FilterTree()
    kept: set[str] = set()
    for topic_filter in filters:
        assert tree.add(topic_filter, topic_filter) == (topic_filter not in kept)
        kept.add(topic_filter)
    for topic_filter in removed:
        assert tree.remove(topic_filter, topic_filter) == (topic_filter in kept)
        kept.discard(topic_filter)
    assert len(tree) == len(kept)
    for topic in topics:
        assert sorted(tree.matches(topic)) == sorted(f for f in kept if topic_matches(f, topic))


@given(FILTERS, TOPICS)
def test_generated_names_are_valid(topic_filter: str, topic: str) -> None:
    validate_filter(topic_filter)
    validate_topic(topic)


def test_value_under_two_matching_filters_is_found_once_for_each() -> None:
    tree: FilterTree[int] = FilterTree()
    tree.add("a/#", 1)
    tree.add("a/+", 1)
    assert list(tree.matches("a/b")) == [1, 1]


def test_removing_one_value_leaves_the_others_of_its_branch() -> None:
    tree: FilterTree[int] = FilterTree()
    tree.add("a", 1)
    tree.add("a", 2)
    tree.add("a/b/c", 3)
    assert not tree.remove("a/b", 3)
    assert tree.remove("a", 1)
    assert list(tree.matches("a")) == [2]
    assert list(tree.matches("a/b/c")) == [3]


def test_topic_with_the_most_levels_needs_no_recursion() -> None:
    tree: FilterTree[int] = FilterTree()
    tree.add("#", 1)
    tree.add("/" * 65_000, 2)
    assert sorted(tree.matches("/" * 65_000)) == [1, 2]
