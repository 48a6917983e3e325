"""Permitted publishes: stored before they are acknowledged, in order, and refused one by one."""

from pathlib import Path

import timestone
from mqtt_front.codec.packets import Puback, Publish
from mqtt_front.codec.properties import Properties
from mqtt_front.handlers.publish import rates
from mqtt_front.settings import MqttSettings
from tests.mqtt_front.test_broker import client
from tests.support.mqtt_server import MqttServer, mqtt_server


def test_acknowledged_publish_is_in_the_log_with_and_without_subscribers(
    server: MqttServer,
) -> None:
    with client(server, "publisher") as publisher:
        log = server.store.log("mqtt")
        before = log.end_offset
        publisher.publish("nobody/listens", b"x")
        record = log.record(before)
        assert (record.topic, record.payload, record.qos, record.block) == ("nobody/listens", b"x", 1, ())
        assert log.synced_offset == before + 1


def test_acknowledgements_are_sent_in_the_order_of_publishes(server: MqttServer) -> None:
    with client(server, "orderly") as publisher:
        ids = list(range(1, 301))
        publisher.send(*[Publish("order", b"%d" % n, 1, packet_id=n) for n in ids])
        assert [publisher.expect(Puback).packet_id for _ in ids] == ids


def test_topic_alias_is_resolved_to_its_topic(server: MqttServer) -> None:
    with client(server, "aliased", 5) as publisher, client(server, "reader", 5, "alias/#") as reader:
        for topic, alias, payload in (
            ("alias/a", 1, b"1"),
            ("", 1, b"2"),
            ("alias/b", 1, b"3"),
            ("", 1, b"4"),
        ):
            publisher.send(Publish(topic, payload, 0, properties=Properties(topic_alias=alias)))
        received = reader.receive(4)
        assert [(one.topic, one.payload) for one in received] == [
            ("alias/a", b"1"), ("alias/a", b"2"), ("alias/b", b"3"), ("alias/b", b"4"),
        ]  # fmt: skip
        assert {one.properties.topic_alias for one in received} == {None}


def test_publish_to_a_reserved_topic_is_refused_without_affecting_others(server: MqttServer) -> None:
    with client(server, "reserved5", 5) as new, client(server, "reserved4", 4) as old:
        new.send(Publish("$SYS/x", b"", 1, packet_id=3))
        assert new.expect(Puback) == Puback(3, 0x87)
        new.send(Publish("$share/g/x", b"", 1, packet_id=4))
        assert new.expect(Puback) == Puback(4, 0x90)
        old.send(Publish("$share/g/x", b""), Publish("$SYS/x", b"", 1, packet_id=5))
        assert old.expect(Puback) == Puback(5)
        old.send(Publish("$share/g/x", b"", 1, packet_id=1))
        old.expect_closed()


def test_full_disk_refuses_publishes_and_deliveries_continue(tmp_path: Path) -> None:
    with (
        timestone.open(tmp_path / "full", min_free_bytes=1 << 60) as store,
        mqtt_server(tmp_path, store=store) as server,
        client(server, "new", 5) as new,
        client(server, "old", 4) as old,
    ):
        new.send(Publish("t", b"x", 1, packet_id=1))
        assert new.expect(Puback) == Puback(1, 0x97)
        old.send(Publish("t", b"x", 1, packet_id=1))
        old.expect_closed()
        new.expect_silence()
        assert server.status()["publishes_dropped"] == 2


def test_new_topics_are_counted_over_the_whole_run(tmp_path: Path) -> None:
    """Some publishes of a run are refused because nothing more may be retained, which cuts it in pieces."""
    with (
        mqtt_server(tmp_path, client_topic_count=2, retained_count=1) as server,
        client(server, "c", 5) as one,
    ):
        one.send(*[Publish(f"t/{number}", b"x", 1, True, packet_id=number + 1) for number in range(3)])
        one.send(*[Publish(f"t/{number}", b"x", 1, packet_id=number + 1) for number in range(3, 6)])
        reasons = [one.expect(Puback).reason for _ in range(6)]
        assert reasons == [0, 0x97, 0x97, 0, 0x97, 0x97]
        assert len(server.store.log("mqtt").topics) == 2


def test_topics_are_not_counted_without_a_limit() -> None:
    assert rates(MqttSettings(), 1) is None
    made = rates(MqttSettings(client_bytes_per_s=5), 1)
    assert made is not None and made[0] is None and made[1] is not None
    assert made[1].spend(50, 1)
