from hypothesis import given
from hypothesis import strategies as st

from timestone.errors import InvalidName
from timestone.filters import topic_matches, validate_filter, validate_topic
from timestone_console.reading.topic_runs import key_of, matching_runs

LEVELS = st.sampled_from(["", "a", "b", "a b", "$x", "!", "\x01", "ab", "\U0001f600"])
TOPICS = st.sets(st.lists(LEVELS, min_size=1, max_size=4).map("/".join), max_size=40)
FILTERS = st.lists(st.one_of(LEVELS, st.just("+"), st.just("#")), min_size=1, max_size=5).map("/".join)


def is_valid(topic_filter: str) -> bool:
    try:
        validate_filter(topic_filter)
    except InvalidName:
        return False
    return True


def found(topics: set[str], topic_filter: str) -> list[str]:
    """Return the topics that a filter selects, in the order of the runs."""
    by_key = {key_of(topic): topic for topic in topics}
    keys = sorted(by_key)
    return [by_key[key] for first, end in matching_runs(keys, topic_filter) for key in keys[first:end]]


def is_topic(name: str) -> bool:
    try:
        validate_topic(name)
    except InvalidName:
        return False
    return True


@given(TOPICS, FILTERS.filter(is_valid))
def test_runs_have_each_topic_that_matches_once_and_in_order(topics: set[str], topic_filter: str) -> None:
    topics = set(filter(is_topic, topics))
    expected = sorted((topic for topic in topics if topic_matches(topic_filter, topic)), key=key_of)
    assert found(topics, topic_filter) == expected


def test_filters_select_levels_their_parent_and_no_topic_of_the_server() -> None:
    topics = {"a", "a/b", "a/b/c", "a/c", "ab", "$SYS/a", "/a"}
    assert found(topics, "a/#") == ["a", "a/b", "a/b/c", "a/c"]
    assert found(topics, "+/b") == ["a/b"] and found(topics, "+") == ["a", "ab"]
    assert found(topics, "#") == ["/a", "a", "a/b", "a/b/c", "a/c", "ab"]
    assert found(topics, "$SYS/+") == ["$SYS/a"] and found(topics, "a/b") == ["a/b"]
    assert found(set(), "#") == []
