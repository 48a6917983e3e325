import itertools

import pytest

from mqtt_front.topics.filter_relations import covers, overlap
from timestone.filters import topic_matches, validate_filter

LEVELS = ["a", "b", "", "+", "#", "$s"]


def filters() -> list[str]:
    """Every filter of up to three levels over a small alphabet."""
    found = []
    for count in (1, 2, 3):
        for levels in itertools.product(LEVELS, repeat=count):
            name = "/".join(levels)
            try:
                validate_filter(name)
            except ValueError:
                continue
            found.append(name)
    return found


TOPICS = [
    "/".join(levels)
    for count in (1, 2, 3, 4)
    for levels in itertools.product(["a", "b", "", "$s", "c"], repeat=count)
]

# The empty name is not a valid topic, but it follows the rules of matching like any other.


def test_covers_and_overlaps_agree_with_matching_for_all_small_filters() -> None:
    matching = {each: {topic for topic in TOPICS if topic_matches(each, topic)} for each in filters() if each}
    for one, other in itertools.product(matching, repeat=2):
        assert overlap(one, other) == bool(matching[one] & matching[other]), (one, other)
        assert covers(one, other) == (matching[other] <= matching[one]), (one, other)


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        ("#", "a/b", True),
        ("#", "$SYS/#", False),
        ("a/#", "a", True),
        ("a/+", "a/#", False),
        ("+", "#", False),
    ],
)
def test_covers_gives_the_expected_examples(outer: str, inner: str, expected: bool) -> None:
    assert covers(outer, inner) is expected
