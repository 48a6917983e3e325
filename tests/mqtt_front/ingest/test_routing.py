"""Routing of topics to logs; each topic is routed once."""

import pytest

from mqtt_front.errors import MalformedPacket
from mqtt_front.ingest.routing import Router
from mqtt_front.kernel.topic_cache import TOPIC_BITS, TOPIC_MASK
from mqtt_front.reasons import Reason
from tests.support.silent_partitions import SilentPartitions
from timestone.commit.submission import Submission
from timestone.config import LogConfig
from timestone.filters import topic_matches
from timestone.fronts import Appendable, Documents
from timestone.log import Log
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch
from timestone_cluster.division import Division
from timestone_cluster.node.forwarding import ForeignTopics


@pytest.fixture
def router(store: Store) -> Router:
    logs = [
        store.log("mqtt", config=LogConfig(topic_count=5)),
        store.log("temperatures"),
        store.log("alarms"),
    ]
    routes = [("alarms/#", 2), ("+/temperature", 1), ("alarms/temperature", 1)]
    return Router(logs, routes, topic_levels=4)


def log_of(router: Router, topic: str) -> str:
    (code,), fault = router.codes([topic.encode()])
    assert fault is None and code >= 0
    log = router.logs[code >> TOPIC_BITS]
    assert log.topic_name(code & TOPIC_MASK) == topic
    return log.name


def test_first_matching_filter_decides_and_the_default_log_takes_the_rest(router: Router) -> None:
    assert log_of(router, "alarms/temperature") == "alarms"
    assert log_of(router, "a/temperature") == "temperatures"
    assert log_of(router, "a/b/temperature") == "mqtt"


def test_known_topic_keeps_its_code(router: Router) -> None:
    first, _ = router.codes([b"a", b"b", b"a"])
    second, _ = router.codes([b"b", b"a", b"c"])
    assert first[0] == first[2] == second[1]
    assert first[1] == second[0]
    assert len({*first, *second}) == 3


@pytest.mark.parametrize("bad", [b"", b"a/+", b"#", b"a\x00", b"\xff", b"a\x01"])
def test_invalid_topic_name_ends_the_run(router: Router, bad: bytes) -> None:
    codes, fault = router.codes([b"a", b"b", bad, b"c"])
    assert len(codes) == 2
    assert isinstance(fault, MalformedPacket)
    assert router.codes([bad])[1] is not None, "and is not remembered"


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("$SYS/x", Reason.NOT_AUTHORIZED),
        ("$SYS", Reason.NOT_AUTHORIZED),
        ("$share/g/t", Reason.TOPIC_NAME_INVALID),
        ("$stream/mqtt", Reason.TOPIC_NAME_INVALID),
        ("$queue/q", Reason.TOPIC_NAME_INVALID),
    ],
)
def test_reserved_topics_are_refused_one_by_one(router: Router, topic: str, reason: Reason) -> None:
    codes, fault = router.codes([b"a", topic.encode(), b"b"])
    assert fault is None
    assert codes[1] == -reason
    assert codes[0] >= 0 and codes[2] >= 0


def test_other_dollar_topics_are_accepted(router: Router) -> None:
    assert log_of(router, "$other/x") == "mqtt"


def test_topic_with_too_many_levels_is_refused(router: Router) -> None:
    assert (code := router.codes([b"a/b/c/d", b"a/b/c/d/e"])[0][1]) == -Reason.TOPIC_NAME_INVALID
    assert router.limit(b"a/b/c/d/e", code) == "topic_levels"
    assert router.limit(b"x" * (1 << 17), code) == "topic_bytes"
    assert router.limit(b"$share/x", code) == ""


def test_many_topics_are_learned_at_once(store: Store) -> None:
    log = store.log("mqtt")
    log.topic_id("b")
    router = Router([log], [], topic_levels=4)
    assert router.learn([b"a", b"b", b"gr\xc3\xbc\xc3\x9fe/c"], "c")
    assert router.codes([b"a", b"b", "grüße/c".encode()]) == ([1, 0, 2], None)
    assert log.topics.names() == ["b", "a", "grüße/c"]


@pytest.mark.parametrize(
    "topic", [b"", b"a+", b"#", b"a\x00", b"\xff", b"a\x01", b"$SYS/x", b"$other", b"a/b/c/d/e", b"x" * 101]
)
def test_special_topics_are_not_learned_in_bulk(store: Store, topic: bytes) -> None:
    router = Router([store.log("mqtt")], [], topic_levels=4, topic_bytes=100)
    assert not any(router.learn(topics, "c") for topics in ([topic], [topic, b"a"], [b"a", topic]))
    assert (len(router.known), len(router.logs[0].topics), router.over) == (0, 0, {})


def test_topics_over_the_limit_of_their_owner_are_not_learned(store: Store) -> None:
    log = store.log("mqtt")
    router = Router([log], [], topic_levels=4, owner_topic_count=3)
    assert router.learn([b"a", b"b"], "one")
    assert not router.learn([b"c", b"d"], "one")
    codes, _ = router.codes([b"a", b"c", b"d"], owner="one")
    assert codes == [0, 2, -Reason.QUOTA_EXCEEDED]
    assert router.code("e", "one") == -Reason.QUOTA_EXCEEDED
    assert router.over == {"client_topic_count": 2}
    assert router.limit(b"d", codes[2], "one") == "client_topic_count"
    assert router.limit(b"$SYS/x", -Reason.NOT_AUTHORIZED, "one") == ""
    assert router.learn([b"d", b"e", b"f"], "two") and router.code("g") == 6


def test_topics_over_the_limit_of_the_log_are_not_learned(router: Router, store: Store) -> None:
    assert not router.learn([b"%d" % number for number in range(6)], "c"), "the log takes five"
    assert len(store.log("mqtt").topics) == 0
    assert router.learn([b"%d" % number for number in range(5)], "c")


def test_topics_of_one_log_are_learned_together(router: Router) -> None:
    assert not router.learn([b"alarms/a", b"a"], "c")
    assert router.learn([b"alarms/a", b"alarms/b"], "c")
    assert log_of(router, "alarms/b") == "alarms"


def test_full_log_refuses_new_topics_and_accepts_known_ones(router: Router) -> None:
    topics = [b"t%d" % number for number in range(7)]
    codes, fault = router.codes(topics)
    assert fault is None
    assert codes[5:] == [-Reason.QUOTA_EXCEEDED] * 2
    assert router.limit(topics[5], codes[5]) == router.limit(topics[5], codes[5], "one") == "topic_count"
    assert router.codes(topics[:5])[0] == codes[:5]


FILTERS = [
    "#",
    "+",
    "a",
    "a/#",
    "+/b",
    "a/b",
    "a/+/c",
    "b/#",
    "+/+",
    "/",
    "a/",
    "alarms/x",
    "$SYS/#",
    "+/temperature",
]
TOPICS = [
    "a",
    "a/b",
    "a/b/c",
    "b",
    "b/c",
    "/",
    "a/",
    "alarms",
    "alarms/x",
    "x/temperature",
    "a/x/c",
    "alarms/temperature",
]


@pytest.mark.parametrize("topic_filter", FILTERS)
def test_subscription_reads_every_log_that_may_have_its_topics(router: Router, topic_filter: str) -> None:
    sources = {source.log.name for source in router.sources(topic_filter)}
    for topic in TOPICS:
        if topic_matches(topic_filter, topic):
            number = next((number for filter_, number in router._routes if topic_matches(filter_, topic)), 0)
            assert router.logs[number].name in sources, topic


def test_subscription_skips_logs_that_cannot_have_its_topics(router: Router) -> None:
    assert [source.log.name for source in router.sources("a/b")] == ["mqtt"]
    assert [source.log.name for source in router.sources("x/temperature")] == ["mqtt", "temperatures"]
    assert router.source("nowhere") is None


class Here(SilentPartitions):
    """Partitions of a cluster whose other shards another node leads: what goes there is noted."""

    home, lags = 1, False

    def __init__(self, count: int) -> None:
        self.count = count
        self._division = Division(count, ("d/{key}/#",))
        self.of_topic, self.of_filter = self._division.of_topic, self._division.of_filter
        self.of_client = self._division.of_client

    def appendable(self, log: Log) -> Appendable:
        return ForeignLog(log.key)

    def documents(self, shard: int) -> Documents:
        raise NotImplementedError


class ForeignLog:
    """Names of topics of a log elsewhere."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.topics = ForeignTopics(lambda name: False, lambda: 0, 100)
        self.topic_id = self.topics.take

    def append_now(self, write_batch: WriteBatch, woken: object = None) -> range | None:
        raise NotImplementedError

    def submit(self, write_batch: WriteBatch, **how: object) -> Submission:
        raise NotImplementedError


def test_topic_has_the_number_of_its_partition_and_filters_name_those_that_may_hold_it(store: Store) -> None:
    here = Here(3)
    logs = [store.log(name, shard) for name in ("mqtt", "alarms") for shard in range(3)]
    router = Router(logs, [("alarms/#", 1)], topic_levels=8, partitions=here)
    for topic in ("a", "b/c", "d/7/x", "alarms/1", "alarms/2/3"):
        shard = here.of_topic(topic)
        name = "alarms" if topic.startswith("alarms") else "mqtt"
        codes, fault = router.codes([topic.encode()] * 2)
        log = router.logs[codes[0] >> TOPIC_BITS]
        assert (fault, log.name, log.partition, len(set(codes))) == (None, name, shard, 1)
        assert (log.topics.find(topic) is not None) == (shard == here.home), "only a leader numbers topics"
        assert [one.log for one in router.sources(f"$stream/{name}/{topic}")] == [log]
        assert log in [one.log for one in router.sources(topic)]
        found = router.source(log.key)
        assert found is not None and found.log is log
    assert [one.log.partition for one in router.sources("#")] == [0, 1, 2, 0, 1, 2]
    assert [one.log.key for one in router.sources("$stream/alarms")] == ["alarms", "alarms:1", "alarms:2"]
    assert [one.log.partition for one in router.sources("d/7/#")] == [here.of_client("7")]
    assert [one.log.key for one in router.own] == ["mqtt:1", "alarms:1"]
    assert len(router.others) == 4
