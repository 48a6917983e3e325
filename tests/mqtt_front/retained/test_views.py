"""Views of the retained messages of other shards."""

import logging

from mqtt_front.retained.checkpoint import CHECKPOINT_KEY, Place, encode_checkpoint, encode_retained
from mqtt_front.retained.keeper import SPACE
from mqtt_front.retained.messages import RetainedMessage
from mqtt_front.retained.views import RetainedViews
from mqtt_front.runtime.user_share import Shares
from tests.support.manual_loop import ManualLoop
from tests.support.silent_partitions import SilentPartitions
from timestone.fronts import Appendable, Documents
from timestone.log import Log
from timestone.record import FLAG_RETAIN
from timestone.store import Store
from timestone_cluster.division import Division


class Stored(SilentPartitions):
    """What shard 1 of two has stored; home is 0."""

    home, count, lags = 0, 2, False
    division = Division(2)
    of_topic, of_filter, of_client = division.of_topic, division.of_filter, division.of_client

    def __init__(self, items: dict[str, bytes]) -> None:
        self._items = items
        self.read_count = 0

    def appendable(self, log: Log) -> Appendable:
        raise NotImplementedError

    def documents(self, shard: int) -> Documents:
        assert shard == 1
        self.read_count += 1
        return self

    def items(self, space: str) -> dict[str, bytes]:
        return dict(self._items) if space == SPACE else {}

    def put_many(self, space: str, items: dict[str, bytes | None]) -> None:
        raise AssertionError("another server stores it")


def test_view_has_what_was_stored_and_follows_the_log(store: Store) -> None:
    logs = [store.log("mqtt", shard) for shard in (0, 1)]
    logs[1].append(b"gone from the log", topic="a", flags=FLAG_RETAIN)
    known = RetainedMessage(0, 1_700_000_000_000_000, "kept", FLAG_RETAIN, b"", b"stored")
    stored = Stored(
        {
            "kept": encode_retained("mqtt:1", known),
            CHECKPOINT_KEY: encode_checkpoint({"mqtt:1": Place(logs[1].id, 1)}),
        }
    )
    views = RetainedViews(ManualLoop(), logging.getLogger("test"), Shares())
    found = views.open(stored, logs)
    messages = found["mqtt:1"]
    assert list(found) == ["mqtt:1"]
    assert [messages.get(topic) is not None for topic in ("kept", "a")] == [True, False]
    logs[1].append(b"new", topic="b", flags=FLAG_RETAIN)
    logs[1].append(b"", topic="kept", flags=FLAG_RETAIN)
    views.follow()
    new = messages.get("b")
    assert new is not None and new.payload == b"new"
    assert messages.get("kept") is None
    assert views.open(stored, logs)["mqtt:1"] is messages
    assert stored.read_count == 1
    views.end()
