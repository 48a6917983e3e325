"""Subscription of a session, and the combined grant of several for one topic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mqtt_front.codec.fields import varint
from mqtt_front.topics.filter_form import FilterForm, parse_filter

_SUBSCRIPTION_IDENTIFIER = b"\x0b"
_NEVER = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Subscription:
    """Topic filter with its options. Replaced when the client subscribes to the same filter again."""

    topic_filter: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    identifier: int | None = None
    since: Mapping[str, int] = field(default_factory=dict)
    """First offset that it covers, by key of each feed that reads for it."""

    @property
    def form(self) -> FilterForm:
        """Return the parsed topic filter."""
        return parse_filter(self.topic_filter)

    @property
    def pattern(self) -> str:
        """Return the filter that topics must match."""
        return self.form.pattern


class Grant:
    """Combined effect of the subscriptions of a session that match a topic, for records of one feed.

    Overlapping subscriptions give one copy, at the highest granted QoS, with the identifiers of all of them."""

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
        """feed: key of the feed. head: topic name with its length, as in a PUBLISH."""
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
        """Encoded subscription identifiers."""
        self.block = varint(len(self.identifiers)) + self.identifiers
        """Complete property block of a delivery whose record has no properties of its own."""
        self.plain_from = max((one.since.get(feed, 0) for one in self._parts), default=0)
        """From this offset on the grant is uniform; below it, and with No Local, `at` decides."""
        if any(one.no_local for one in self._parts):
            self.plain_from = _NEVER

    def at(self, offset: int, own: bool) -> "Grant | None":
        """Return the grant for the record at an offset below `plain_from`. own: whether the subscriber published it."""
        parts = [
            one
            for one in self._parts
            if one.since.get(self._feed, 0) <= offset and not (own and one.no_local)
        ]
        return Grant(parts, self._feed, self.head) if parts else None
