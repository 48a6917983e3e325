"""Topics that owners have added to logs: within their limits, and restored after a restart."""

import json
import logging

import pytest

from mqtt_front.ingest.topic_use import SAVED_FROM, TopicUse
from mqtt_front.runtime.user_share import Shares
from tests.support.damaged_json import DAMAGED_JSON
from timestone.config import LogConfig
from timestone.log import Log
from timestone.store import Store

LOG = logging.getLogger("test")


@pytest.fixture
def log(store: Store) -> Log:
    return store.log("mqtt", config=LogConfig(topic_count=1000, topic_bytes=10_000))


@pytest.mark.parametrize(
    ("count", "size_bytes", "limit"),
    [(3, 30, None), (4, 40, "client_topic_count"), (1, 4971, "user_share_percent"), (1, 4970, None)],
)
def test_owner_is_refused_when_a_limit_would_be_exceeded(
    log: Log, count: int, size_bytes: int, limit: str | None
) -> None:
    use = TopicUse([log], Shares(50), 10)
    use.add("a", 0, 7, 30)
    assert use.over("a", 0, count, size_bytes) == limit
    assert use.over("b", 0, count, size_bytes - 30) is None


def test_share_of_the_log_applies_when_it_is_the_smaller_limit(log: Log) -> None:
    use = TopicUse([log], Shares(50), 10_000)
    assert (use.over("a", 0, 500, 1), use.over("a", 0, 501, 1)) == (None, "user_share_percent")


def test_counted_topics_are_restored_after_a_restart(log: Log, store: Store) -> None:
    other = store.log("other")
    use = TopicUse([log, other], Shares())
    use.add("few", 0, SAVED_FROM - 1, 5)
    use.add("\0many", 0, SAVED_FROM, 500)
    use.add("", 1, 1, 100_000)
    documents = use.changes()
    assert documents.keys() == {"\0many", ""} and not use.changed
    again = TopicUse([other, log], Shares())
    again.restore(documents, LOG)
    assert (again._counts[1].of("\0many"), again._counts[0].of(""), again._counts[1].of("few")) == (
        SAVED_FROM,
        1,
        0,
    )
    assert again.over("", 0, 1, 256 * 1024 * 1024 - 100_000) is None
    assert again.over("", 0, 1, 256 * 1024 * 1024 - 99_999) == "user_share_percent"


def test_counts_of_a_log_with_another_identity_are_dropped(log: Log) -> None:
    body = {"version": 1, "logs": {"mqtt": [log.id + 1, 500, 500], "gone": [1, 2, 3]}}
    use = TopicUse([log], Shares())
    use.restore({"a": json.dumps(body).encode()}, LOG)
    assert use._counts[0].of("a") == 0


@pytest.mark.parametrize(
    "document",
    [b'{"version":2,"logs":{}}', b'{"version":1,"logs":{"mqtt":[1,-1,1]}}', b'{"version":1,"logs":[1]}',
     *DAMAGED_JSON.values()],
)  # fmt: skip
def test_undecodable_document_affects_only_its_owner(
    log: Log, document: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    good = json.dumps({"version": 1, "logs": {"mqtt": [log.id, 500, 500]}}).encode()
    use = TopicUse([log], Shares())
    use.restore({"bad": document, "good": good}, LOG)
    assert (use._counts[0].of("bad"), use._counts[0].of("good")) == (0, 500)
    assert len(caplog.messages) == 1 and "topics of 'bad' are counted from 0" in caplog.text
