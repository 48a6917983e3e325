"""Which log takes a topic. Topics arrive as bytes; each is validated and looked up once, then known by its
bytes."""

from collections.abc import Collection, Sequence

from mqtt_front.codec.fields import decode_text
from mqtt_front.codec.reasons import Reason
from mqtt_front.errors import MalformedPacket, MqttError
from mqtt_front.feed import LogSource
from mqtt_front.filter_relations import overlap
from mqtt_front.retained import RetainedMessages
from timestone.errors import TopicLimit
from timestone.filters import topic_matches
from timestone.log import Log

TOPIC_BITS = 32
TOPIC_MASK = (1 << TOPIC_BITS) - 1
RESERVED = ("$SYS", "$share", "$stream", "$queue")
"""First levels that clients cannot publish to: the server speaks there, or they are not topics at all."""


class Router:
    """Topic bytes to codes: `number of the log << 32 | topic id`, or minus a reason code for a topic that is
    refused.

    What is remembered is bounded by the topic limits of the logs: refused topics are not.
    """

    def __init__(self, logs: Sequence[Log], routes: Sequence[tuple[str, int]], *, topic_levels: int) -> None:
        """`logs[0]` is the default log; `routes` are filters with the number of their log, the first match
        wins."""
        self.logs = tuple(logs)
        self.retained = tuple(RetainedMessages(log) for log in logs)
        """Of each log."""
        self._sources = tuple(LogSource(each.log, {}, each) for each in self.retained)
        self._routes = tuple(routes)
        self._topic_levels = topic_levels
        self._known: dict[bytes, int] = {}

    def codes(
        self, topics: Sequence[bytes], forbidden: Collection[bytes] = ()
    ) -> tuple[list[int], MqttError | None]:
        """The code of each topic, up to the first that is no topic name, and what is wrong with that one.

        Those that are `forbidden` get NOT_AUTHORIZED and are not learned.
        """
        known = self._known
        if forbidden:
            return self._learn_all(topics, forbidden)
        try:
            return [known[topic] for topic in topics], None
        except KeyError:
            return self._learn_all(topics)

    def code(self, topic: str) -> int:
        """The code of one topic that did not come from a PUBLISH: of a will. Raises MalformedPacket."""
        return self._learn(topic.encode())

    def sources(self, topic_filter: str) -> list[LogSource]:
        """The logs that may hold topics matching a filter; the default log always may."""
        numbers = {number for filter_, number in self._routes if overlap(filter_, topic_filter)}
        return [self._sources[number] for number in sorted(numbers | {0})]

    def source(self, name: str) -> LogSource | None:
        """The log of that name, if topics are routed to it."""
        return next((one for one in self._sources if one.log.name == name), None)

    def _learn_all(
        self, topics: Sequence[bytes], forbidden: Collection[bytes] = ()
    ) -> tuple[list[int], MqttError | None]:
        codes: list[int] = []
        for topic in topics:
            if topic in forbidden:
                codes.append(-Reason.NOT_AUTHORIZED)
                continue
            try:
                code = self._known.get(topic)
                codes.append(self._learn(topic) if code is None else code)
            except MqttError as error:
                return codes, error
        return codes, None

    def _learn(self, raw: bytes) -> int:
        topic = decode_text(raw)
        if not topic or "+" in topic or "#" in topic:
            raise MalformedPacket("a topic name is empty or has a wildcard")
        if topic.startswith("$") and topic.partition("/")[0] in RESERVED:
            return -Reason.TOPIC_NAME_INVALID
        if topic.count("/") >= self._topic_levels:
            return -Reason.TOPIC_NAME_INVALID
        number = next((log for filter_, log in self._routes if topic_matches(filter_, topic)), 0)
        try:
            topic_id = self.logs[number].topic_id(topic)
        except TopicLimit:
            return -Reason.QUOTA_EXCEEDED
        code = self._known[raw] = number << TOPIC_BITS | topic_id
        return code
