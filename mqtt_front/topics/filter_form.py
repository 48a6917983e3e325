"""What a client asks for when it subscribes: topics, topics shared with others, or the history of a log.

<filter>                            what is published to topics from now on
$share/<group>/<filter>             the same, each message to one of the group
$queue/<name>/<filter>              the same, and the group survives without members
$stream/<log>[/@<start>][/<filter>] the records of a log from a place on
$share/<group>/$stream/…            those, each to one of the group; likewise $queue
"""

import enum
import functools
from typing import NamedTuple

from mqtt_front.topics.replay_start import Start, parse_topic_start
from timestone.errors import InvalidName
from timestone.filters import validate_filter
from timestone.format.names import validate_log_name

_REMEMBERED_LENGTH = 256
"""Filters up to this length are remembered, at most 4096 of them: they come from outside."""


class Kind(enum.Enum):
    """Who gets what a subscription is about."""

    PLAIN = enum.auto()
    SHARED = enum.auto()
    """One of the sessions that have it; it ends with the last of them."""
    QUEUE = enum.auto()
    """One of the sessions that have it; it waits when there is none."""
    STREAM = enum.auto()
    """This session, at its own pace from its own place."""


class FilterForm(NamedTuple):
    """A topic filter as its parts."""

    kind: Kind
    pattern: str
    """The filter that topics have to match."""
    log: str | None = None
    """The log whose records are asked for; None for whichever logs take the topics."""
    start: Start | None = None
    """The place in the log, where the topic filter says it."""

    @property
    def shared(self) -> bool:
        """Is each message for one session only?"""
        return self.kind in (Kind.SHARED, Kind.QUEUE)


def parse_filter(topic_filter: str) -> FilterForm:
    """The parts of a topic filter. Raises InvalidName for one that is none [MQTT-4.7.1-1, 4.8.2-1, 4.8.2-2]."""
    return (_remembered if len(topic_filter) <= _REMEMBERED_LENGTH else _parsed)(topic_filter)


def _parsed(topic_filter: str) -> FilterForm:
    first, _, rest = topic_filter.partition("/")
    if first in ("$share", "$queue"):
        return _shared(topic_filter, Kind.SHARED if first == "$share" else Kind.QUEUE, rest)
    if first == "$stream":
        return _stream(topic_filter, rest)
    validate_filter(topic_filter)
    return FilterForm(Kind.PLAIN, topic_filter)


_remembered = functools.lru_cache(4096)(_parsed)


def _shared(topic_filter: str, kind: Kind, rest: str) -> FilterForm:
    name, _, inner = rest.partition("/")
    if not name or "+" in name or "#" in name:
        raise InvalidName(
            f"{topic_filter!r} names no valid group: expected at least one character without '+' and '#'"
        )
    form = parse_filter(inner)
    if form.shared:
        raise InvalidName(f"{topic_filter!r} is a shared subscription inside another")
    return form._replace(kind=kind)


def _stream(topic_filter: str, rest: str) -> FilterForm:
    log, _, rest = rest.partition("/")
    validate_log_name(log)
    start = None
    if rest.startswith("@"):
        text, _, rest = rest.partition("/")
        start = parse_topic_start(text)
    pattern = rest or "#"
    validate_filter(pattern)
    return FilterForm(Kind.STREAM, pattern, log, start)
