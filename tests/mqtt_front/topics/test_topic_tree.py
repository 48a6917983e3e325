"""A filter finds exactly the topics that match it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtt_front.topics.topic_tree import TopicTree
from timestone.filters import topic_matches

LEVELS = st.sampled_from(["a", "b", "", "$s"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
FILTERS = st.tuples(st.lists(LEVELS | st.just("+"), max_size=4), st.booleans()).map(
    lambda parts: "/".join([*parts[0], *(["#"] if parts[1] else [])])
)


@pytest.mark.slow
@given(st.lists(TOPICS, max_size=30), st.lists(TOPICS, max_size=10), FILTERS.filter(bool))
def test_tree_finds_the_same_topics_as_matching_one_by_one(
    added: list[str], removed: list[str], topic_filter: str
) -> None:
    tree = TopicTree()
    for topic in added:
        tree.add(topic)
    for topic in removed:
        tree.remove(topic)
    left = set(added) - set(removed)
    found = list(tree.matching(topic_filter))
    assert sorted(found) == sorted(topic for topic in left if topic_matches(topic_filter, topic))


def test_removed_topic_leaves_no_nodes() -> None:
    tree = TopicTree()
    for topic in ("a", "a/b", "a/b/c"):
        tree.add(topic)
    for topic in ("a/b", "a/b/c", "a", "never"):
        tree.remove(topic)
    assert list(tree.matching("#")) == [] and not tree._root.children


@pytest.mark.slow
@pytest.mark.parametrize("topic_filter", ["#", "/".join("+" * 20_001), "/".join("a" * 20_001)])
def test_deep_topics_need_no_recursion(topic_filter: str) -> None:
    tree = TopicTree()
    tree.add("/".join("a" * 20_001))
    assert len(list(tree.matching(topic_filter))) == 1
