"""A published will is found in its log by the key in its record, from its place on."""

import pytest

from mqtt_front.ingest.routing import Router
from mqtt_front.protocol.header_block import with_will_key
from mqtt_front.wills.will_records import Place, WillRecords
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch


class Logs:
    """`alarms` takes alarms/#, `mqtt` the rest."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.logs = [store.log("mqtt"), store.log("alarms")]
        self.records = WillRecords(Router(self.logs, [("alarms/#", 1)], topic_levels=10))

    def publish(self, topic: str, key: str | None = None, log: int = 0) -> int:
        target = self.logs[log]
        block = b"" if key is None else with_will_key(b"", key)
        write_batch = WriteBatch([block + b"payload"], target.topics.add(topic), header_lengths=len(block))
        return target.append_batch(write_batch, ack="written").start


@pytest.fixture
def logs(store: Store) -> Logs:
    return Logs(store)


def test_place_is_the_end_of_the_routed_log(logs: Logs) -> None:
    logs.publish("a")
    assert logs.records.place("a", "c") == Place("mqtt", 1)
    assert logs.records.place("alarms/a", "c") == Place("alarms", 0)


@pytest.mark.parametrize("topic", ["", "a/#", "$SYS/a", "/".join("x" * 11)])
def test_will_with_an_invalid_topic_has_no_place(logs: Logs, topic: str) -> None:
    assert logs.records.place(topic, "c") is None


def test_will_record_is_found_from_its_place_on_under_its_topic(logs: Logs) -> None:
    for _ in range(3):
        logs.publish("t")
    offset = logs.publish("t", "one")
    logs.publish("t", "two")
    assert logs.records.holds(Place("mqtt", 0), "t", "one")
    assert logs.records.holds(Place("mqtt", offset), "t", "one")
    assert not logs.records.holds(Place("mqtt", offset + 1), "t", "one")
    assert not logs.records.holds(Place("mqtt", 0), "u", "one")
    assert not logs.records.holds(Place("mqtt", 0), "t", "three")
    assert not logs.records.holds(Place("alarms", 0), "t", "one")
    assert not logs.records.holds(Place("gone", 0), "t", "one")


def test_place_beyond_the_end_has_no_will_record(logs: Logs) -> None:
    assert not logs.records.holds(Place("mqtt", 1 << 40), "t", "one")
