"""One subscription of a session, and what several of them together grant for one topic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mqtt_front.codec.fields import varint
from mqtt_front.topics.filter_form import FilterForm, parse_filter

_SUBSCRIPTION_IDENTIFIER = b"\x0b"
_NEVER = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Subscription:
    """A topic filter with its options. Replaced whole when the client subscribes to the same filter again."""

    topic_filter: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    identifier: int | None = None
    since: Mapping[str, int] = field(default_factory=dict)
    """By key of each feed that reads for it: the first offset that it is about. Earlier records were there
    before it."""

    @property
    def form(self) -> FilterForm:
        """What the topic filter asks for."""
        return parse_filter(self.topic_filter)

    @property
    def pattern(self) -> str:
        """The filter that topics have to match."""
        return self.form.pattern


class Grant:
    """What the subscriptions of a session that match a topic come to, for records of one feed.

    Overlapping subscriptions give one copy, at the highest granted QoS, with the identifiers of all of them.
    """

    __slots__ = (
        "_feed",
        "_parts",
        "block",
        "head",
        "identifiers",
        "plain_from",
        "qos",
        "retain_as_published",
    )

    def __init__(self, subscriptions: Sequence[Subscription], feed: str, head: bytes) -> None:
        """`feed` is the key of the feed, `head` the topic name behind its length, as it stands in a PUBLISH."""
        self._parts = tuple(subscriptions)
        self._feed = feed
        self.head = head
        self.qos = max((one.qos for one in self._parts), default=0)
        self.retain_as_published = any(one.retain_as_published for one in self._parts)
        self.identifiers = b"".join(
            _SUBSCRIPTION_IDENTIFIER + varint(one.identifier)
            for one in self._parts
            if one.identifier is not None
        )
        """The subscription identifiers as encoded properties."""
        self.block = varint(len(self.identifiers)) + self.identifiers
        """The whole property block of a delivery whose record has no properties of its own."""
        self.plain_from = max((one.since.get(feed, 0) for one in self._parts), default=0)
        """From this offset on the grant holds as it is; below, and where No Local is asked for, `at` says
        what counts."""
        if any(one.no_local for one in self._parts):
            self.plain_from = _NEVER

    def at(self, offset: int, own: bool) -> "Grant | None":
        """What counts for the record at an offset below `plain_from`; `own` if the subscriber published it
        itself."""
        parts = [
            one
            for one in self._parts
            if one.since.get(self._feed, 0) <= offset and not (own and one.no_local)
        ]
        return Grant(parts, self._feed, self.head) if parts else None
