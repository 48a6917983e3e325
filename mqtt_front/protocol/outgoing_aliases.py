"""Topic aliases of deliveries on one connection: the first topics, and those that come often, go out as a number once
the client knows it (section 3.3.2.3.4)."""

_OFTEN = 4
"""Deliveries after which a topic is worth a number when half of them are given: most topics come once, or often."""
_COUNTED_MAX = 4096
"""Topics that are counted at a time."""
_TOPIC_ALIAS = b"\x23"
_SHORT = 2 + 3
"""A topic up to here takes no more room than its number."""
NO_TOPIC = b"\0\0"
"""An empty topic name behind its length: the alias says which."""


class OutgoingAliases:
    """What the client has been told, which ends with the connection. Topics are as they stand in a PUBLISH, behind
    their lengths. Numbers are given to the first topics that come often, and stay theirs."""

    __slots__ = ("_counts", "_known", "_maximum", "_properties")

    def __init__(self, maximum: int) -> None:
        """`maximum`: of the client [MQTT-3.1.2-29], and of the server."""
        self._maximum = maximum
        self._counts: dict[bytes, int] = {}
        self._properties: dict[bytes, bytes] = {}
        self._known: set[bytes] = set()

    @property
    def settled(self) -> bool:
        """Nothing will change any more."""
        return len(self._known) == self._maximum

    @property
    def told_count(self) -> int:
        """Topics whose numbers the client knows."""
        return len(self._known)

    def sent(self, head: bytes, count: int = 1) -> bool:
        """So many deliveries of a topic went out, with its name and, if it has a number, with that. True when the topic
        is to be sent in another way from now on."""
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

    def tells(self, head: bytes) -> bool:
        """The next delivery of a topic goes out with both, name and number."""
        return head not in self._known and (head in self._properties or self._takes(head))

    def of(self, head: bytes) -> tuple[bytes, bytes]:
        """How a topic goes out: its name, or none if the client knows the number; and the property with the number."""
        number = self._properties.get(head)
        if number is None:
            if not self._takes(head):
                return head, b""
            number = self._give(head)
        return NO_TOPIC if head in self._known else head, number

    def _takes(self, head: bytes) -> bool:
        """A topic gets a number the first time."""
        return len(self._properties) < (self._maximum + 1) // 2 and len(head) > _SHORT

    def _give(self, head: bytes) -> bytes:
        number = self._properties[head] = _TOPIC_ALIAS + (len(self._properties) + 1).to_bytes(2, "big")
        return number
