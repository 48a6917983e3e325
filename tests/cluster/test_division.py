"""Division of topics and clients into shards."""

import itertools

import pytest

from timestone.filters import topic_matches
from timestone_cluster.division import Division, check_template

LEVELS = ("devices", "7", "plant", "$SYS")
TEMPLATES = ("devices/{key}/#", "+/7/{key}/#")
TOPICS = ["/".join(one) for count in (1, 2, 3, 4) for one in itertools.product(LEVELS, repeat=count)]


def test_topics_of_a_key_are_in_the_shard_of_the_client_with_that_id() -> None:
    division = Division(16, ("devices/{key}/#",))
    shards = {division.of_topic(topic) for topic in ("devices/d1", "devices/d1/a", "devices/d1/a/b")}
    assert shards == {division.of_client("d1")}
    assert division.of_filter("devices/d1/#") == division.of_client("d1")


def test_values_are_those_that_are_documented() -> None:
    division = Division(4)
    assert [division.of_client("123456789"), division.of_topic("123456789")] == [0xE3069283 % 4] * 2


@pytest.mark.parametrize("templates", [(), TEMPLATES, TEMPLATES[::-1], ("{key}/#",)])
def test_filter_has_a_shard_only_if_all_its_topics_are_there(templates: tuple[str, ...]) -> None:
    division = Division(1000, templates)
    for count in (1, 2, 3):
        for levels in itertools.product((*LEVELS, "+"), repeat=count):
            for pattern in ("/".join(levels), "/".join((*levels, "#"))):
                found = division.of_filter(pattern)
                shards = {division.of_topic(one) for one in TOPICS if topic_matches(pattern, one)}
                assert found is None or shards <= {found}, pattern


@pytest.mark.parametrize(
    "template", ["", "#", "a/#", "{key}", "a/{key}", "{key}/{key}/#", "a/{id}/#", "a/{key}/b/#"]
)
def test_invalid_template_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="invalid key"):
        check_template(template)
