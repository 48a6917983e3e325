"""Routing of topics to logs. Topics arrive as bytes; each is validated and looked up once, then cached by its bytes."""

import itertools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from mqtt_front.codec.fields import decode_text
from mqtt_front.errors import MalformedPacket, MqttError
from mqtt_front.feeds.feed import LogSource
from mqtt_front.feeds.group_store import Groups
from mqtt_front.feeds.remote_group import Branches
from mqtt_front.ingest.topic_use import TopicUse
from mqtt_front.kernel.loops import TopicCache
from mqtt_front.kernel.topic_cache import TOPIC_BITS
from mqtt_front.reasons import Reason
from mqtt_front.retained.messages import RetainedMessages
from mqtt_front.runtime.user_share import Shares
from mqtt_front.topics.filter_form import parse_filter
from mqtt_front.topics.filter_relations import overlap
from timestone.config import LogConfig
from timestone.errors import TopicLimit
from timestone.filters import topic_matches
from timestone.fronts import Appendable, Partitions
from timestone.log import Log
from timestone.metrics.records import SERVER_ROOT
from timestone.record import HEADER_BLOCK_BYTES_MAX

_NO_VIEWS: Mapping[str, RetainedMessages] = {}
RESERVED = ("$SYS", SERVER_ROOT, "$share", "$stream", "$queue")
"""First levels that clients cannot publish to: reserved for the server, or not topics at all."""


class Router:
    """Router from topic bytes to codes: `number of the log << 32 | topic id`, or minus a reason code for a refused
    topic. The cache is bounded by the topic limits of the logs; refused topics are not cached.

    In a cluster with several shards each partition of a log has a number of its own: that of the log times the number
    of shards, plus that of the shard."""

    def __init__(
        self,
        logs: Sequence[Log],
        routes: Sequence[tuple[str, int]],
        *,
        topic_levels: int,
        topic_bytes: int = 65_535,
        shares: Shares | None = None,
        owner_topic_count: int = 1 << 32,
        server_logs: Sequence[Log] = (),
        partitions: Partitions | None = None,
        views: Mapping[str, RetainedMessages] = _NO_VIEWS,
    ) -> None:
        """logs: the first is the default log. routes: filters with the number of their log; the first match applies.
        owner_topic_count: maximum number of topics that one owner may create in a log. server_logs: what the server
        records about itself, which clients may only read. partitions: of each log, which then are one behind the other
        in `logs`. views: retained messages of those of other shards, by key."""
        self.shares = Shares() if shares is None else shares
        self.partitions = partitions
        self.logs = tuple(logs)
        self.appendable: tuple[Appendable, ...] = self.logs
        """Where publishes go, in the same order."""
        if partitions is not None:
            home = partitions.home
            self.appendable = tuple(
                log if log.partition == home else partitions.appendable(log) for log in self.logs
            )
        self.retained = tuple(views[log.key] if log.key in views else RetainedMessages(log) for log in logs)
        """Retained messages of each log."""
        self.groups = Groups(self.shares, None if partitions is None else Branches(partitions))
        """The shared subscriptions."""
        self._sources = tuple(
            LogSource(each.log, {}, each, self.groups, None if partitions is None else each.log.partition)
            for each in self.retained
        )
        self._server_sources = tuple(LogSource.of(log) for log in server_logs)
        self.readable = (*self.logs, *server_logs)
        """Logs that a replay can name."""
        self.topic_use = TopicUse(self.logs, self.shares, owner_topic_count)
        self._routes = tuple(routes)
        self._count = 1 if partitions is None else partitions.count
        self._topic_levels = topic_levels
        self._topic_bytes = topic_bytes
        self.over: Counter[str] = Counter()
        """By limit: number of topics refused because of it."""
        self.known = TopicCache()
        """Codes of the topics that were looked up and accepted."""

    def codes(
        self, topics: Sequence[bytes], forbidden: Collection[bytes] = (), owner: str | None = None
    ) -> tuple[list[int], MqttError | None]:
        """Return the code of each topic, up to the first invalid topic name, and the error of that one. `forbidden`
        topics get NOT_AUTHORIZED and are not cached; an `owner` may create a limited number of topics in a log."""
        if not forbidden:
            codes = [self.known.get(topic, -1) for topic in topics]
            if -1 not in codes:
                return codes, None
        codes = []
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

    def learn(self, topics: Sequence[bytes], owner: str) -> bool:
        """Look up distinct unknown topics at once, and create those that are new to their log. Return False, without a
        change, if they need individual handling by `codes`, which counts refusals: some may be invalid names, they go
        to several logs, or the `owner` may not create so many."""
        names = _plain_names(topics)
        if not names or max(map(len, topics)) > self._topic_bytes:
            return False
        if max([name.count("/") for name in names]) >= self._topic_levels:
            return False
        numbers = set(map(self._number, names)) if self._routes or self.partitions else {0}
        if len(numbers) > 1:
            return False
        number = numbers.pop()
        if self.appendable[number] is not self.logs[number]:
            return False  # which of the names are new is known one by one
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
            self.topic_use.add(owner, number, sum(new), sum(map(len, itertools.compress(topics, new))))
        first = number << TOPIC_BITS
        for topic, topic_id in zip(topics, ids.tolist(), strict=True):
            self.known.add(topic, first | topic_id)
        return True

    def code(self, topic: str, owner: str | None = None) -> int:
        """Return the code of one topic that did not come from a PUBLISH, such as that of a will. Raises
        MalformedPacket."""
        return self._learn(topic.encode(), owner)

    def limit(self, topic: bytes, code: int, owner: str | None = None) -> str:
        """Return the setting for which `codes` has just refused a topic of an owner; empty if there is none."""
        if code == -Reason.QUOTA_EXCEEDED:
            number = self._number(decode_text(topic))
            over = None if owner is None else self.topic_use.over(owner, number, 1, len(topic))
            return over or "topic_count"
        if code == -Reason.TOPIC_NAME_INVALID and topic.count(b"/") >= self._topic_levels:
            return "topic_levels"
        return "topic_bytes" if code == -Reason.TOPIC_NAME_INVALID and len(topic) > self._topic_bytes else ""

    def sources(self, topic_filter: str) -> list[LogSource]:
        """Return the logs that may hold topics matching a filter: always the default log, unless the topics are the
        server's own. Only one if the filter names it; none if it names one that does not exist. The server's own logs
        are not shared."""
        form = parse_filter(topic_filter)
        if form.of_server and form.shared:
            return []
        if form.log is not None:
            return self._named(form.log, form.pattern)
        if form.of_server:
            return list(self._server_sources)
        if form.pattern.partition("/")[0] == "$SYS":
            return []
        numbers = {number for filter_, number in self._routes if overlap(filter_, form.pattern)}
        return self._holding(form.pattern, sorted(numbers | {0}))

    @property
    def own_logs(self) -> Sequence[Log]:
        """Return the logs whose leader is this server."""
        return [one.log for one in self.own]

    @property
    def own(self) -> Sequence[RetainedMessages]:
        """Return the retained messages of the logs whose leader is this server."""
        pairs = zip(self.retained, self.appendable, strict=True)
        return [one for one, appendable in pairs if appendable is one.log]

    @property
    def others(self) -> Sequence[RetainedMessages]:
        """Return those of the logs whose leader may be another one."""
        return [one for one in self.retained if one not in self.own]

    def _named(self, name: str, pattern: str) -> list[LogSource]:
        names = [one.log.name for one in self._sources]
        if name in names:
            return self._holding(pattern, [names.index(name) // self._count])
        return [one for one in self._server_sources if one.log.name == name]

    def _holding(self, pattern: str, numbers: Sequence[int]) -> list[LogSource]:
        """Return the partitions of some logs that may hold topics matching a pattern."""
        if self.partitions is None:
            return [self._sources[number] for number in numbers]
        only = self.partitions.of_filter(pattern)
        shards = range(self._count) if only is None else (only,)
        return [self._sources[number * self._count + shard] for number in numbers for shard in shards]

    def source(self, key: str) -> LogSource | None:
        """Return the log with that key, if topics are routed to it or the server writes it."""
        return next((one for one in (*self._sources, *self._server_sources) if one.log.key == key), None)

    def _learn(self, raw: bytes, owner: str | None) -> int:
        """Return the code of a topic that is not cached; a new one is refused if its `owner` has reached the limit."""
        topic = decode_text(raw)
        if not topic or "+" in topic or "#" in topic:
            raise MalformedPacket("invalid topic name: expected at least one character and no wildcard")
        if topic.startswith("$") and (first := topic.partition("/")[0]) in RESERVED:
            # Bridges publish their state under $SYS: this reason, unlike others, does not end an MQTT 3 connection.
            return -(Reason.NOT_AUTHORIZED if first in RESERVED[:2] else Reason.TOPIC_NAME_INVALID)
        if topic.count("/") >= self._topic_levels:
            return self._refuse("topic_levels", Reason.TOPIC_NAME_INVALID)
        if len(raw) > self._topic_bytes:
            return self._refuse("topic_bytes", Reason.TOPIC_NAME_INVALID)
        number = self._number(topic)
        log = self.appendable[number]
        topic_id = log.topics.find(topic)
        if topic_id is None:
            over = None if owner is None else self.topic_use.over(owner, number, 1, len(raw))
            if over is not None:
                return self._refuse(over, Reason.QUOTA_EXCEEDED)
            try:
                topic_id = log.topic_id(topic)
            except TopicLimit:
                return self._refuse("topic_count", Reason.QUOTA_EXCEEDED)
            if owner is not None:
                self.topic_use.add(owner, number, 1, len(raw))
        code = number << TOPIC_BITS | topic_id
        self.known.add(raw, code)
        return code

    def _number(self, topic: str) -> int:
        """Return the number of the log that a topic is routed to."""
        log = next((log for filter_, log in self._routes if topic_matches(filter_, topic)), 0)
        return log if self.partitions is None else log * self._count + self.partitions.of_topic(topic)

    def _refuse(self, limit: str, reason: Reason) -> int:
        self.over[limit] += 1
        return -reason


def _plain_names(topics: Sequence[bytes]) -> list[str] | None:
    """Return the names of the topics if one check of all together shows that they are valid and not reserved; else
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


def check_room(packet_bytes: int, log: str, config: LogConfig) -> None:
    """Check that a log takes the largest packet. Raises ValueError."""
    needed = packet_bytes + HEADER_BLOCK_BYTES_MAX
    if config.record_bytes < needed:
        raise ValueError(
            f"invalid record_bytes of log {log}: expected at least {needed} (packet_bytes {packet_bytes} "
            f"and headers), got {config.record_bytes}"
        )
