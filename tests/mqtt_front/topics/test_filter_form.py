"""Parsing of topic filters."""

import pytest

from mqtt_front.topics.filter_form import FilterForm, Kind, parse_filter
from mqtt_front.topics.replay_start import EARLIEST, Start, StartKind
from timestone.errors import InvalidName


@pytest.mark.parametrize(
    ("topic_filter", "form"),
    [
        ("a/+/#", FilterForm(Kind.PLAIN, "a/+/#")),
        ("$SYS/#", FilterForm(Kind.PLAIN, "$SYS/#")),
        ("$shared/a", FilterForm(Kind.PLAIN, "$shared/a")),
        ("$share/g/a/#", FilterForm(Kind.SHARED, "a/#")),
        ("$share/g//a", FilterForm(Kind.SHARED, "/a")),
        ("$queue/q/+", FilterForm(Kind.QUEUE, "+")),
        ("$stream/mqtt", FilterForm(Kind.STREAM, "#", "mqtt")),
        ("$stream/mqtt/a/b", FilterForm(Kind.STREAM, "a/b", "mqtt")),
        ("$stream/mqtt//b", FilterForm(Kind.STREAM, "/b", "mqtt")),
        ("$stream/mqtt/@earliest", FilterForm(Kind.STREAM, "#", "mqtt", EARLIEST)),
        ("$stream/mqtt/@offset:7/a/#", FilterForm(Kind.STREAM, "a/#", "mqtt", Start(StartKind.OFFSET, 7))),
        ("$stream/mqtt/@earliest/@x", FilterForm(Kind.STREAM, "@x", "mqtt", EARLIEST)),
        ("$share/g/$stream/mqtt/a", FilterForm(Kind.SHARED, "a", "mqtt")),
        ("$queue/q/$stream/mqtt/@earliest/a", FilterForm(Kind.QUEUE, "a", "mqtt", EARLIEST)),
    ],
)  # fmt: skip
def test_filter_is_parsed_into_kind_log_start_and_topics(topic_filter: str, form: FilterForm) -> None:
    assert parse_filter(topic_filter) == form


@pytest.mark.parametrize(
    "topic_filter", ["a/#/b", "a+", "", "$share", "$share/", "$share//a", "$share/g", "$share/g/", "$share/+/a",
                     "$share/g/a#", "$share/g/$share/h/a", "$queue/q/$share/g/a", "$queue", "$queue/q", "$stream",
                     "$stream/", "$stream/a b/c", "$stream/../x", "$stream/mqtt/@then/a", "$stream/mqtt/a/#/b"],
)  # fmt: skip
def test_invalid_filter_is_refused(topic_filter: str) -> None:
    with pytest.raises(InvalidName):
        parse_filter(topic_filter)
