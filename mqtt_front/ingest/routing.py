"""Which log takes a topic. Topics arrive as bytes; each is validated and looked up once, then known by its
bytes."""

import itertools
from collections import Counter
from collections.abc import Collection, Sequence

from mqtt_front.codec.fields import decode_text
from mqtt_front.errors import MalformedPacket, MqttError
from mqtt_front.feeds.feed import LogSource
from mqtt_front.feeds.group_store import Groups
from mqtt_front.ingest.topic_use import TopicUse
from mqtt_front.kernel.loops import KnownTopics
from mqtt_front.kernel.topic_cache import TOPIC_BITS
from mqtt_front.reasons import Reason
from mqtt_front.retained.messages import RetainedMessages
from mqtt_front.runtime.shares import Shares
from mqtt_front.topics.filter_form import parse_filter
from mqtt_front.topics.filter_relations import overlap
from timestone.errors import TopicLimit
from timestone.filters import topic_matches
from timestone.log import Log

RESERVED = ("$SYS", "$share", "$stream", "$queue")
"""First levels that clients cannot publish to: the server speaks there, or they are not topics at all."""


class Router:
    """Topic bytes to codes: `number of the log << 32 | topic id`, or minus a reason code for a topic that is
    refused.

    What is remembered is bounded by the topic limits of the logs: refused topics are not.
    """

    def __init__(
        self,
        logs: Sequence[Log],
        routes: Sequence[tuple[str, int]],
        *,
        topic_levels: int,
        topic_bytes: int = 65_535,
        shares: Shares | None = None,
        owner_topic_count: int = 1 << 32,
    ) -> None:
        """`logs[0]` is the default log; `routes` are filters with the number of their log, the first match
        wins; `owner_topic_count` is the most topics that one owner may bring into a log."""
        self.shares = Shares() if shares is None else shares
        self.logs = tuple(logs)
        self.retained = tuple(RetainedMessages(log) for log in logs)
        """Of each log."""
        self.groups = Groups(self.shares)
        """The shared subscriptions."""
        self._sources = tuple(LogSource(each.log, {}, each, self.groups) for each in self.retained)
        self.topic_use = TopicUse(self.logs, self.shares, owner_topic_count)
        self._routes = tuple(routes)
        self._topic_levels = topic_levels
        self._topic_bytes = topic_bytes
        self.created_count = 0
        """Topics that no log knew before."""
        self.over: Counter[str] = Counter()
        """By limit: how often a topic was refused because of it."""
        self.known = KnownTopics()
        """The codes of topics that were looked up and not refused."""

    def codes(
        self, topics: Sequence[bytes], forbidden: Collection[bytes] = (), owner: str | None = None
    ) -> tuple[list[int], MqttError | None]:
        """The code of each topic, up to the first that is no topic name, and what is wrong with that one.

        Those that are `forbidden` get NOT_AUTHORIZED and are not learned; an `owner` brings as many into a log as it
        may.
        """
        if not forbidden:
            codes = [self.known.get(topic, -1) for topic in topics]
            if -1 not in codes:
                return codes, None
        return self._learn_all(topics, forbidden, owner)

    def learn(self, topics: Sequence[bytes], owner: str) -> bool:
        """Look different topics up at once that are not known, and bring those into their log that are new. False when
        there is more to it, and nothing was done: `codes` looks at them one by one, and counts what it refuses. So it
        is when some may be no names, or they go to several logs, or the `owner` may not bring so many new ones."""
        names = _plain_names(topics)
        if not names or max(map(len, topics)) > self._topic_bytes:
            return False
        if max([name.count("/") for name in names]) >= self._topic_levels:
            return False
        numbers = set(map(self._number, names)) if self._routes else {0}
        if len(numbers) > 1:
            return False
        number = numbers.pop()
        if self.topic_use.over(owner, number, len(names), sum(map(len, topics))) is not None:
            return False
        log = self.logs[number]
        before = len(log.topics)
        try:
            ids = log.topics.add_all(names)
        except TopicLimit:
            return False
        new = (ids >= before).tolist()
        if any(new):
            self.created_count += sum(new)
            self.topic_use.add(owner, number, sum(new), sum(map(len, itertools.compress(topics, new))))
        first = number << TOPIC_BITS
        for topic, topic_id in zip(topics, ids.tolist(), strict=True):
            self.known.add(topic, first | topic_id)
        return True

    def code(self, topic: str, owner: str | None = None) -> int:
        """The code of one topic that did not come from a PUBLISH: of a will. Raises MalformedPacket."""
        return self._learn(topic.encode(), owner)

    def sources(self, topic_filter: str) -> list[LogSource]:
        """The logs that may hold topics matching a filter: always the default log, unless the server speaks there. Only
        one if the filter names it; none if there is none of that name."""
        form = parse_filter(topic_filter)
        if form.log is not None:
            named = self.source(form.log)
            return [] if named is None else [named]
        if form.pattern.partition("/")[0] == "$SYS":
            return []
        numbers = {number for filter_, number in self._routes if overlap(filter_, form.pattern)}
        return [self._sources[number] for number in sorted(numbers | {0})]

    def source(self, name: str) -> LogSource | None:
        """The log of that name, if topics are routed to it."""
        return next((one for one in self._sources if one.log.name == name), None)

    def _learn_all(
        self, topics: Sequence[bytes], forbidden: Collection[bytes], owner: str | None
    ) -> tuple[list[int], MqttError | None]:
        codes: list[int] = []
        for topic in topics:
            if topic in forbidden:
                codes.append(-Reason.NOT_AUTHORIZED)
                continue
            try:
                code = self.known.get(topic, -1)
                codes.append(self._learn(topic, owner) if code < 0 else code)
            except MqttError as error:
                return codes, error
        return codes, None

    def _learn(self, raw: bytes, owner: str | None) -> int:
        """The code of a topic that is not remembered; a new one is refused if its `owner` has as many as it may."""
        topic = decode_text(raw)
        if not topic or "+" in topic or "#" in topic:
            raise MalformedPacket("invalid topic name: expected at least one character and no wildcard")
        if topic.startswith("$") and (first := topic.partition("/")[0]) in RESERVED:
            # Bridges tell of themselves under $SYS: of all reasons, this is the one that does not end MQTT 3.
            return -(Reason.NOT_AUTHORIZED if first == "$SYS" else Reason.TOPIC_NAME_INVALID)
        if topic.count("/") >= self._topic_levels:
            return self._refuse("topic_levels", Reason.TOPIC_NAME_INVALID)
        if len(raw) > self._topic_bytes:
            return self._refuse("topic_bytes", Reason.TOPIC_NAME_INVALID)
        number = self._number(topic)
        log = self.logs[number]
        topic_id = log.topics.find(topic)
        if topic_id is None:
            over = None if owner is None else self.topic_use.over(owner, number, 1, len(raw))
            if over is not None:
                return self._refuse(over, Reason.QUOTA_EXCEEDED)
            try:
                topic_id = log.topic_id(topic)
            except TopicLimit:
                return self._refuse("topic_count", Reason.QUOTA_EXCEEDED)
            self.created_count += 1
            if owner is not None:
                self.topic_use.add(owner, number, 1, len(raw))
        code = number << TOPIC_BITS | topic_id
        self.known.add(raw, code)
        return code

    def _number(self, topic: str) -> int:
        """Of the log that takes a topic."""
        return next((log for filter_, log in self._routes if topic_matches(filter_, topic)), 0)

    def _refuse(self, limit: str, reason: Reason) -> int:
        self.over[limit] += 1
        return -reason


def _plain_names(topics: Sequence[bytes]) -> list[str] | None:
    """The names of topics of which a look at all together shows that they are names, and no topics of the server; else
    None."""
    try:
        text = b"#".join(topics).decode()  # a name has no "#" in it
    except UnicodeDecodeError:
        return None
    names = text.split("#")
    if len(names) != len(topics) or not all(names):
        return None
    if not text.isprintable() or "+" in text or text.startswith("$") or "#$" in text:
        return None
    return names
