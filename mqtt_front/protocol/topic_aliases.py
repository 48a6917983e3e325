"""Topic aliases of one connection (section 3.3.2.3.4). Of publishes: as the client sets and uses them. Of deliveries:
the first topics, and frequent ones, are sent by alias once the client knows it."""

from mqtt_front.errors import ProtocolViolation
from mqtt_front.reasons import Reason

_OFTEN = 4
"""Deliveries after which a topic gets an alias when half of them are left: most topics occur once, or often."""
_COUNTED_MAX = 4096
"""Maximum number of topics counted at a time."""
_TOPIC_ALIAS = b"\x23"
_SHORT = 2 + 3
"""A topic of at most this size takes no more room than its alias."""
NO_TOPIC = b"\0\0"
"""An empty topic name with its length: the alias identifies the topic."""


class InboundAliases:
    """Aliases set by the publishes of a client, until the connection ends."""

    __slots__ = ("_maximum", "_topics")

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._topics: dict[int, bytes] = {}

    def resolve(self, topic: bytes, alias: int) -> bytes:
        """Return the topic of a publish with an alias, which its topic sets and an empty one uses. Raises
        ProtocolViolation."""
        if alias > self._maximum:
            message = f"topic alias {alias}; the limit is {self._maximum}"
            raise ProtocolViolation(message, Reason.TOPIC_ALIAS_INVALID, "topic_alias_maximum")
        if topic:
            self._topics[alias] = topic
            return topic
        known = self._topics.get(alias)
        if known is None:
            raise ProtocolViolation(f"topic alias {alias} was never set")
        return known


class OutgoingAliases:
    """Aliases known to the client, until the connection ends. Topics are as in a PUBLISH, with their lengths.
    Aliases are assigned to the first topics that occur often and do not change."""

    __slots__ = ("_counts", "_known", "_maximum", "_properties")

    def __init__(self, maximum: int) -> None:
        """maximum: the lower one of the client [MQTT-3.1.2-29] and the server."""
        self._maximum = maximum
        self._counts: dict[bytes, int] = {}
        self._properties: dict[bytes, bytes] = {}
        self._known: set[bytes] = set()

    @property
    def settled(self) -> bool:
        """Return whether no alias will be assigned any more."""
        return len(self._known) == self._maximum

    @property
    def told_count(self) -> int:
        """Return the number of topics whose alias the client knows."""
        return len(self._known)

    def sent(self, head: bytes, count: int = 1) -> bool:
        """Note deliveries of a topic, with its name and, if it has one, with its alias. Return whether the topic is
        to be sent in another way from now on."""
        if head in self._properties:
            if head in self._known:
                return False
            self._known.add(head)
            return True
        if len(self._properties) == self._maximum or len(head) <= _SHORT:
            return False
        if len(self._counts) >= _COUNTED_MAX:
            self._counts.clear()
        seen = self._counts[head] = self._counts.get(head, 0) + count
        if seen < _OFTEN:
            return False
        del self._counts[head]
        self._give(head)
        return True

    def expect(self, head: bytes, count: int) -> bool:
        """Assign an alias to a topic that the next `count` deliveries make frequent. Return whether it got one."""
        return count >= _OFTEN and head not in self._properties and self.sent(head, count)

    def tells(self, head: bytes) -> bool:
        """Return whether the next delivery of a topic introduces its alias."""
        return head not in self._known and (head in self._properties or self._takes(head))

    def of(self, head: bytes) -> tuple[bytes, bytes]:
        """Return how a topic is sent: its name, or none if the client knows the alias; and the alias property."""
        number = self._properties.get(head)
        if number is None:
            if not self._takes(head):
                return head, b""
            number = self._give(head)
        return NO_TOPIC if head in self._known else head, number

    def _takes(self, head: bytes) -> bool:
        """Assign an alias when a topic first qualifies."""
        return len(self._properties) < (self._maximum + 1) // 2 and len(head) > _SHORT

    def _give(self, head: bytes) -> bytes:
        number = self._properties[head] = _TOPIC_ALIAS + (len(self._properties) + 1).to_bytes(2, "big")
        return number
