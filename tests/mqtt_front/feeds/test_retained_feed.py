"""Retained messages as clients see them (traps 32 to 36), over raw sockets and with paho."""

import contextlib
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import timestone
from mqtt_front.codec import packets
from mqtt_front.codec.packets import MQTT_5, Publish, Request, Will
from mqtt_front.codec.properties import Properties
from mqtt_front.settings import Route
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_process import MqttProcess
from tests.support.mqtt_server import MqttServer, mqtt_server
from tests.support.paho_client import PahoClient
from tests.support.step_clock import StepClock
from tests.support.waiting import TIMEOUT_S, wait_for
from timestone.config import LogConfig, StoreConfig


@pytest.fixture(params=[4, 5])
def level(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def client(server: MqttServer, name: str, level: int = 4, *, clean: bool = True) -> RawClient:
    made = RawClient(server.address, level)
    lasting = Properties(session_expiry_interval=3600) if level == MQTT_5 and not clean else None
    made.connect(name, clean=clean, properties=lasting)
    return made


def retain(publisher: RawClient, topic: str, payload: bytes, qos: int = 1, **properties: Any) -> None:
    """Publish with RETAIN, and wait until that is acknowledged."""
    wanted = Properties(**properties)
    publisher.send(Publish(topic, payload, qos, retain=True, packet_id=qos and 1, properties=wanted))
    if qos == 1:
        assert publisher.expect(packets.Puback).reason == 0
    elif qos == 2:
        assert publisher.expect(packets.Pubrec).reason == 0
        publisher.send(packets.Pubrel(1))
        publisher.expect(packets.Pubcomp)
    else:
        publisher.expect_silence()


def got(reader: RawClient, *filters: str | Request, count: int) -> dict[str, tuple[bytes, bool]]:
    """Subscribe; return payload and RETAIN of the deliveries by topic."""
    reader.subscribe(*filters)
    received = reader.receive(count)
    reader.expect_silence()
    return {one.topic: (one.payload, one.retain) for one in received}


def test_retain_flag_is_set_on_retained_and_not_on_live_messages(server: MqttServer, level: int) -> None:
    with client(server, "publisher", level) as publisher, client(server, "reader", level) as reader:
        retain(publisher, f"r33/{level}", b"1")
        reader.subscribe(f"r33/{level}")
        assert [(one.payload, one.retain) for one in reader.receive(1)] == [(b"1", True)]
        retain(publisher, f"r33/{level}", b"2")
        assert [(one.payload, one.retain) for one in reader.receive(1)] == [(b"2", False)]
        if level == MQTT_5:
            reader.subscribe(Request(f"r33/{level}", 1, retain_as_published=True, retain_handling=2))
            retain(publisher, f"r33/{level}", b"3")
            assert [(one.payload, one.retain) for one in reader.receive(1)] == [(b"3", True)]


def test_empty_payload_clears_the_retained_message_and_is_delivered_but_not_kept(
    server: MqttServer, level: int
) -> None:
    topic = f"r32/{level}"
    with client(server, "publisher", level) as publisher, client(server, "live", level) as live:
        retain(publisher, topic, b"1")
        live.subscribe(Request(topic, 1))
        assert live.receive(1)[0].payload == b"1"
        publisher.publish(topic, b"")  # P50: without the flag it clears nothing
        assert live.receive(1)[0].payload == b""
        with client(server, "second", level) as second:
            assert got(second, topic, count=1) == {topic: (b"1", True)}
        properties: dict[str, Any] = {"user_properties": (("a", "b"),)} if level == MQTT_5 else {}
        retain(publisher, topic, b"", **properties)
        assert [(one.payload, one.retain) for one in live.receive(1)] == [(b"", False)]
        with client(server, "third", level) as third:
            assert got(third, topic, count=0) == {}


def test_retain_handling_determines_when_retained_messages_are_sent(server: MqttServer) -> None:
    with client(server, "publisher") as publisher, client(server, "handling", 5) as reader:
        retain(publisher, "r34/a", b"1")

        def count(handling: int) -> int:
            reader.subscribe(Request("r34/+", 1, retain_handling=handling))
            reader.send(packets.Pingreq())
            found = 0
            while isinstance(packet := reader.next_packet(), Publish):
                reader.send(packets.Puback(packet.packet_id))
                found += 1
            return found

        assert [count(handling) for handling in (2, 1, 0, 0)] == [0, 0, 1, 1]
        reader.send(packets.Unsubscribe(9, ("r34/+",)))
        reader.expect(packets.Unsuback)
        assert count(1) == 1


def test_wildcards_find_retained_messages_and_do_not_match_dollar_topics(
    server: MqttServer, level: int
) -> None:
    with client(server, "publisher", level) as publisher, client(server, "wild", level) as reader:
        for topic in ("r38/only", "r38/only/b", "$r38/only"):
            retain(publisher, topic, topic.encode())
        assert got(reader, "r38/#", count=2).keys() == {"r38/only", "r38/only/b"}
        assert got(reader, "+/only", count=1).keys() == {"r38/only"}
        assert got(reader, "$r38/+", count=1).keys() == {"$r38/only"}


def test_mqtt_3_session_gets_retained_messages_again_when_it_resubscribes(server: MqttServer) -> None:
    with client(server, "publisher") as publisher, client(server, "again") as reader:
        retain(publisher, "again", b"1")
        for _ in range(3):
            assert got(reader, "again", count=1) == {"again": (b"1", True)}


def test_retained_messages_keep_qos_and_properties(server: MqttServer) -> None:
    full: dict[str, Any] = {
        "payload_format_indicator": 1, "content_type": "text/plain", "response_topic": "answers",
        "correlation_data": b"\x00\xff", "user_properties": (("z", "1"), ("a", "2"), ("z", "1")),
    }  # fmt: skip
    with client(server, "publisher", 5) as publisher, client(server, "reader", 5) as reader:
        for qos in (0, 1, 2):
            retain(publisher, f"r35/{qos}", b"x", qos, **full)
        reader.subscribe(Request("r35/#", 2), properties=Properties(subscription_identifiers=(7,)))
        received = {one.topic[-1]: one for one in reader.receive(3, acknowledge=False)}
        assert {name: one.qos for name, one in received.items()} == {"0": 0, "1": 1, "2": 2}
        assert {one.properties for one in received.values()} == {
            Properties(**full, subscription_identifiers=(7,))
        }


def test_subscriber_sees_the_last_value_last_when_it_changes_during_subscribe(
    server: MqttServer,
) -> None:
    """A storm of subscribers while a publisher updates: no window in which a value is neither retained nor live, and
    none older than one that was seen before."""
    stop = threading.Event()
    last = 0

    def publish() -> None:
        nonlocal last
        with client(server, "storm-publisher") as publisher:
            number = 0
            while not stop.is_set():
                number += 1
                retain(publisher, "storm", b"%d" % number)
            last = number

    thread = threading.Thread(target=publish)
    thread.start()
    readers = []
    try:
        for number in range(60):
            readers.append(client(server, f"storm-{number}", 4 + number % 2))
            readers[-1].send(packets.Subscribe(1, (Request("storm", number % 2), Request("#", 1))))
    finally:
        time.sleep(0.05)
        stop.set()
        thread.join()
    for reader in readers:
        seen: list[int] = []
        while not seen or seen[-1] < last:
            packet = reader.next_packet()
            if isinstance(packet, Publish) and packet.topic == "storm":
                seen.append(int(packet.payload))
            if isinstance(packet, Publish) and packet.qos:
                reader.send(packets.Puback(packet.packet_id))
        twice = [number for number in seen if seen.count(number) > 2]  # once for each filter at the most
        assert sorted(seen) == seen or len(set(seen)) < len(seen), seen
        assert not twice and seen[-1] == last
        live = list(dict.fromkeys(seen))
        assert live == list(range(live[0], last + 1)), "a hole"
        reader.close()


def test_no_local_skips_the_clients_own_retained_messages(server: MqttServer) -> None:
    with client(server, "local", 5) as one, client(server, "remote", 5) as other:
        retain(one, "r43/own", b"1")
        retain(other, "r43/other", b"2")
        assert got(one, Request("r43/#", 1, no_local=True), count=1).keys() == {"r43/other"}


def test_retained_will_becomes_a_retained_message(server: MqttServer) -> None:
    dying = RawClient(server.address)
    dying.connect("dying", will=Will("will/retained", b"gone", 1, True))
    dying.close()
    log = server.store.log("mqtt")
    wait_for(lambda: any(record.topic == "will/retained" for record in log.reader()))
    with client(server, "mourner") as mourner:
        assert got(mourner, "will/retained", count=1) == {"will/retained": (b"gone", True)}


def test_expired_retained_message_is_skipped_and_others_carry_their_remaining_time(
    tmp_path: Path,
) -> None:
    clock = StepClock()
    with (
        timestone.Store(tmp_path, StoreConfig(), clock=clock) as store,
        mqtt_server(tmp_path, store=store, clock=clock) as server,
        client(server, "publisher", 5) as publisher,
        client(server, "reader", 5) as reader,
    ):
        retain(publisher, "expiry/short", b"x", message_expiry_interval=10)
        retain(publisher, "expiry/long", b"x", message_expiry_interval=100)
        server.pass_time(9.5)
        assert server.status()["retained"] == 2
        server.pass_time(1)
        assert server.status()["retained"] == 1
        reader.subscribe("expiry/#")
        (left,) = reader.receive(1)
        reader.expect_silence()
        assert left.topic == "expiry/long"
        assert left.properties.message_expiry_interval == 90


def test_retained_burst_waits_for_a_slow_client_and_continues_after_reconnects(
    server: MqttServer, level: int
) -> None:
    """Trap 49, with a retained burst: more than the client takes at a time, a reconnect in the middle of it."""
    with client(server, "publisher", 5) as publisher:
        for number in range(40):
            retain(publisher, f"burst{level}/{number}", b"%d" % number)
        properties = Properties(receive_maximum=5, session_expiry_interval=3600) if level == MQTT_5 else None
        reader = RawClient(server.address, level)
        reader.connect(f"burst-{level}", clean=False, properties=properties)
        reader.subscribe(f"burst{level}/#")
        first = reader.receive(5, acknowledge=False)
        reader.send(packets.Puback(first[1].packet_id))
        if level == MQTT_5:
            first += reader.receive(1, acknowledge=False)
            reader.expect_silence()
        reader.close()
        retain(publisher, f"burst{level}/0", b"new")  # in flight: the old value is not sent again
        again = RawClient(server.address, level)
        assert again.connect(f"burst-{level}", clean=False, properties=properties).session_present
        with again:
            received = [publish for _ in range(39) for publish in again.receive(1)]
            again.expect_silence()
        payloads = [one.payload for one in received]
        payloads.remove(b"new")  # it is live, and may overtake retained messages of other topics
        assert [int(payload) for payload in payloads] == list(range(2, 40)) and received[0].duplicate
        assert received[0].packet_id == first[2].packet_id


def test_retained_messages_survive_a_restart_and_the_deletion_of_their_segments(tmp_path: Path) -> None:
    """Retention deletes every segment that holds them, before and after a restart."""
    routes = (Route(filter="brief/#", log="brief"),)
    settings: dict[str, Any] = {"routes": routes, "session_save_ms": 20}
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(
            timestone.open(tmp_path, log=LogConfig(retention_bytes=1, segment_entries=10))
        )
        server = stack.enter_context(mqtt_server(tmp_path, store=store, **settings))
        with client(server, "p", 5) as publisher:
            for number in range(25):
                retain(publisher, f"brief/{number}", b"%d" % number, user_properties=(("n", str(number)),))
            for number in range(5):
                retain(publisher, f"brief/{number}", b"")
            for _ in range(50):
                publisher.publish("brief/filler", b"")
            log = store.log("brief")
            wait_for(lambda: log.start_offset >= 30)
            with client(server, "reader", 5) as reader:
                assert len(got(reader, "brief/+", count=20)) == 20
    with mqtt_server(tmp_path, **settings) as server, client(server, "reader", 5) as reader:
        assert server.store.log("brief").start_offset >= 30
        reader.subscribe("brief/#")
        received = reader.receive(20)
        assert [one.payload for one in received] == [b"%d" % number for number in range(5, 25)]
        assert [one.properties.user_properties for one in received] == [
            (("n", str(number)),) for number in range(5, 25)
        ]


@pytest.mark.crash
@pytest.mark.parametrize("pause_s", [0.0, 0.3, 1.4])
def test_retained_messages_survive_kill_9_with_and_without_saved_documents(
    tmp_path: Path, pause_s: float
) -> None:
    server = MqttProcess(tmp_path)
    with RawClient(server.address) as publisher:
        publisher.connect("p")
        for number in range(100):
            retain(publisher, f"k/{number % 30}", b"%d" % number)
        for number in range(5):
            retain(publisher, f"k/{number}", b"")
        time.sleep(pause_s)
    server.kill()
    server = MqttProcess(tmp_path)
    with RawClient(server.address) as reader:
        reader.connect("r")
        reader.subscribe("k/#")
        received = {one.topic: one.payload for one in reader.receive(25)}
        reader.expect_silence()
    server.kill()
    newest = {f"k/{number % 30}": b"%d" % number for number in range(100)}
    assert received == {topic: newest[topic] for topic in newest if int(topic[2:]) >= 5}


def test_retained_publish_over_the_limit_is_refused_and_others_accepted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(
            mqtt_server(tmp_path, retained_count=2, retained_bytes=1000, user_share_percent=100)
        )
        with client(server, "full", 5) as publisher, client(server, "old", 4) as old:
            for topic in ("a", "b", "a"):
                retain(publisher, topic, b"x")
            publisher.send(*[
                Publish(topic, b"y", 1, retain=topic == "c", packet_id=number)
                for number, topic in enumerate("acbc", 1)
            ])  # fmt: skip
            answers = [publisher.expect(packets.Puback) for _ in range(4)]
            assert [(one.packet_id, one.reason) for one in answers] == [(1, 0), (2, 0x97), (3, 0), (4, 0x97)]
            publisher.send(Publish("a", b"x" * 1000, 2, retain=True, packet_id=9))
            assert publisher.expect(packets.Pubrec) == packets.Pubrec(9, 0x97)
            old.send(Publish("d", b"x", 0, retain=True))
            old.expect_silence()
            old.send(Publish("d", b"x", 1, retain=True, packet_id=1))
            old.expect_closed()
            retain(publisher, "a", b"")
            retain(publisher, "e", b"x")
            status = server.status()
            assert (status["retained"], status["retained_refused"]) == (2, 5)
            with client(server, "reader") as reader:
                assert got(reader, "#", count=2) == {"b": (b"x", True), "e": (b"x", True)}
            topics = [record.topic for record in server.store.log("mqtt").reader()]
            assert "c" not in topics and "d" not in topics
    assert "refused: QUOTA_EXCEEDED" in caplog.text


def test_retained_message_is_withheld_from_a_client_that_may_not_read_its_topic(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("topic readwrite open/#\ntopic write closed/#\n")
    with (
        mqtt_server(tmp_path / "data", acl_file=tmp_path / "acl") as server,
        client(server, "p", 5) as publisher,
        client(server, "r", 5) as reader,
    ):
        retain(publisher, "open/a", b"1")
        retain(publisher, "closed/a", b"2")
        assert got(reader, "#", count=1).keys() == {"open/a"}


@pytest.mark.parametrize("level_", [4, 5])
def test_paho_receives_retained_messages(server: MqttServer, level_: int) -> None:
    with PahoClient("paho-p", level=level_) as publisher, PahoClient("paho-r", level=level_) as reader:
        assert publisher.connect(server.address) == reader.connect(server.address) == 0
        publisher.client.publish(f"paho/{level_}", b"kept", qos=1, retain=True).wait_for_publish(TIMEOUT_S)
        reader.subscribe(f"paho/{level_}/#", qos=2)
        message = reader.messages.get(timeout=TIMEOUT_S)
        assert (message.payload, message.retain, message.qos) == (b"kept", True, 1)


def test_packet_id_of_qos_2_is_released_when_its_message_is_gone(server: MqttServer) -> None:
    """Story: a retained message is in flight at QoS 2 when the connection breaks, and replaced before the client is
    back. It is not sent again; but the client may have it under its id, and would take the next message with that id
    for a repetition."""
    with client(server, "publisher") as publisher:
        retain(publisher, "released", b"old", 2)
        with client(server, "releasing", clean=False) as reader:
            reader.subscribe(Request("released", 2))
            (old,) = reader.receive(1, acknowledge=False)
        retain(publisher, "released", b"new", 2)
        with client(server, "releasing", clean=False) as reader:
            found = [reader.next_packet(), reader.next_packet()]
            assert packets.Pubrel(old.packet_id) in found
            (new,) = [one for one in found if isinstance(one, Publish)]
            assert (new.payload, new.packet_id != old.packet_id) == (b"new", True)
            reader.send(packets.Pubcomp(old.packet_id))
            reader.expect_silence()
