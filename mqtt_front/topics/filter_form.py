"""Forms of a topic filter in SUBSCRIBE: plain topics, shared subscriptions, queues, and the history of a log.

<filter>                            messages published to topics from now on
$share/<group>/<filter>             the same, each message to one member of the group
$queue/<name>/<filter>              the same, and the queue is kept without members
$stream/<log>[/@<start>][/<filter>] records of a log from a position on
$share/<group>/$stream/…            the same, each to one member of the group; likewise $queue"""

import enum
import functools
from typing import NamedTuple

from mqtt_front.topics.replay_start import Start, parse_topic_start
from timestone.errors import InvalidName
from timestone.filters import validate_filter
from timestone.format.names import is_server_log, validate_log_name
from timestone.metrics.records import SERVER_ROOT

_REMEMBERED_LENGTH = 256
"""Maximum length of cached filters, of which 4096 are kept: they come from clients."""


class Kind(enum.Enum):
    """Kind of a subscription: the sessions that get its messages."""

    PLAIN = enum.auto()
    SHARED = enum.auto()
    """One of the member sessions; the subscription ends with its last member."""
    QUEUE = enum.auto()
    """One of the member sessions; messages wait while there is none."""
    STREAM = enum.auto()
    """This session alone, at its own pace from its own position."""


class FilterForm(NamedTuple):
    """Parts of a topic filter."""

    kind: Kind
    pattern: str
    """Filter that topics must match."""
    log: str | None = None
    """Log whose records are requested; None for every log that takes the topics."""
    start: Start | None = None
    """Position in the log, if the filter states one."""

    @property
    def of_server(self) -> bool:
        """Return whether it matches only what the server records about itself."""
        return self.pattern.partition("/")[0] == SERVER_ROOT

    @property
    def shared(self) -> bool:
        """Return whether each message goes to one session only."""
        return self.kind in (Kind.SHARED, Kind.QUEUE)


def parse_filter(topic_filter: str) -> FilterForm:
    """Parse a topic filter. Raises InvalidName for a malformed one [MQTT-4.7.1-1, 4.8.2-1, 4.8.2-2]."""
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
    pattern = rest or (f"{SERVER_ROOT}/#" if is_server_log(log) else "#")
    validate_filter(pattern)
    return FilterForm(Kind.STREAM, pattern, log, start)
