"""Replay as clients see it: every kind of start, properties of deliveries, resuming, gaps. Raw sockets and paho."""

import datetime
import json
import time
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties

import timestone
from mqtt_front.codec import packets
from mqtt_front.codec.packets import MQTT_5, Publish, Request
from mqtt_front.codec.properties import Properties
from mqtt_front.settings import Route
from tests.mqtt_front.feeds.test_shared_feed import collect, numbers, publish
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_process import MqttProcess
from tests.support.mqtt_server import MqttServer, mqtt_server
from tests.support.paho_client import PahoClient
from tests.support.waiting import TIMEOUT_S, wait_for
from timestone.writing.write_batch import WriteBatch

LOG = "mqtt"


def reader(
    address: tuple[str, int], name: str, level: int = 5, *, lasting: bool = False, room: int | None = None
) -> RawClient:
    client = RawClient(address, level)
    properties = Properties(session_expiry_interval=3600 if lasting else None, receive_maximum=room)
    client.connect(name, clean=not lasting, properties=properties if level == MQTT_5 else None)
    return client


def replay(
    client: RawClient, *filters: str | Request, start: str | None = None, **more: str
) -> tuple[int, ...]:
    """Subscribe with user properties; the reason codes."""
    said = {"stream-offset": start, **{name.replace("_", "-"): value for name, value in more.items()}}
    users = tuple((name, value) for name, value in said.items() if value is not None)
    return client.subscribe(*filters, properties=Properties(user_properties=users) if users else None)


def places(received: list[Publish]) -> list[dict[str, str]]:
    return [dict(one.properties.user_properties) for one in received]


@pytest.fixture(scope="module")
def history(server: MqttServer) -> list[tuple[int, int]]:
    """Twenty numbers under h/<number % 2>, with pauses: their offsets and times."""
    log = server.store.log(LOG)
    first = log.end_offset
    for number in range(20):
        publish(server, f"h/{number % 2}", range(number, number + 1))
        time.sleep(0.002)
    return [(record.offset, record.timestamp_us) for record in log.reader(first)]


def test_mqtt_5_replay_begins_at_the_user_property(
    server: MqttServer, history: list[tuple[int, int]]
) -> None:
    begins = {
        "earliest": range(20), f"offset:{history[7][0]}": range(7, 20), f"{history[5][1]}": range(5, 20),
        f"{history[5][1] + 1}": range(6, 20), "0": range(20), "latest": range(0), None: range(0),
    }  # fmt: skip
    for start, expected in begins.items():
        with reader(server.address, "v5") as client:
            assert replay(client, "$stream/mqtt/h/#", start=start) == (1,)
            assert numbers(collect(len(expected), client)[0]) == list(expected), start


@pytest.mark.parametrize("level", [4, 5])
def test_replay_begins_at_the_place_in_the_topic_filter(
    server: MqttServer, history: list[tuple[int, int]], level: int
) -> None:
    moment = datetime.datetime.fromtimestamp(0, datetime.UTC)
    moment += datetime.timedelta(microseconds=history[12][1])
    text = moment.isoformat().replace("+00:00", "Z")
    begins = {
        "@earliest/h/#": range(20), f"@offset:{history[7][0]}/h/#": range(7, 20), f"@time:{text}/h/#": range(12, 20),
        "@latest/h/#": range(0), "h/#": range(0), "@earliest/h/1": range(1, 20, 2),
    }  # fmt: skip
    for form, expected in begins.items():
        with reader(server.address, f"form{level}", level) as client:
            assert client.subscribe(f"$stream/mqtt/{form}") == (1,)
            assert numbers(collect(len(expected), client)[0]) == list(expected), form


def test_replay_continues_with_new_messages_without_a_gap(server: MqttServer) -> None:
    publish(server, "seam", range(5))
    with reader(server.address, "seam") as client:
        replay(client, "$stream/mqtt/seam", start="earliest")
        publish(server, "seam", range(5, 10))
        assert numbers(collect(10, client)[0]) == list(range(10))


def test_deliveries_carry_position_properties_after_those_of_the_publisher(
    server: MqttServer,
) -> None:
    with reader(server.address, "both") as client, reader(server.address, "p") as publisher:
        own = Properties(content_type="x", user_properties=(("offset", "mine"), ("z", "1")))
        publisher.send(Publish("places", b"1", 1, packet_id=1, properties=own))
        publisher.expect(packets.Puback)
        log = server.store.log(LOG)
        record = log.record(log.end_offset - 1)
        client.subscribe(Request("places", 2), properties=Properties(subscription_identifiers=(6,)))
        client.subscribe(
            Request("$stream/mqtt/@earliest/places", 2),
            properties=Properties(subscription_identifiers=(5,)),
        )
        (replayed,) = client.receive(1)
        assert replayed.properties == Properties(
            content_type="x", subscription_identifiers=(5,),
            user_properties=(*own.user_properties, ("log", "mqtt"), ("offset", str(record.offset)),
                             ("timestamp", str(record.timestamp_us))),
        )  # fmt: skip
        assert (replayed.qos, replayed.topic, replayed.retain) == (1, "places", False)
        publisher.send(Publish("places", b"2", 2, packet_id=2))
        publisher.expect(packets.Pubrec)
        both = {one.properties.subscription_identifiers: one for one in client.receive(2, acknowledge=False)}
        assert both[5,].qos == both[6,].qos == 2
        assert both[6,].properties.user_properties == ()
        assert dict(both[5,].properties.user_properties)["offset"] == str(record.offset + 1)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_replay_has_messages_of_any_qos(server: MqttServer, qos: int) -> None:
    publish(server, f"anyqos/{qos}", range(10), qos)
    wait_for(lambda: server.store.log(LOG).topics.find(f"anyqos/{qos}") is not None)
    with reader(server.address, "anyqos") as client:
        assert replay(client, Request(f"$stream/mqtt/anyqos/{qos}", 2), start="earliest") == (2,)
        received = client.receive(10, acknowledge=False)
        assert numbers(received) == list(range(10)) and {one.qos for one in received} == {qos}


REFUSED: dict[str, tuple[str, dict[str, Any], int]] = {
    "no such log": ("$stream/nothing/a", {}, 0x8F),
    "no log at all": ("$stream", {}, 0x8F),
    "no name": ("$stream/../a", {}, 0x8F),
    "no place": ("$stream/mqtt/@then/a", {}, 0x8F),
    "a property that is no place": ("$stream/mqtt/a", {"start": "yesterday"}, 0x83),
    "an offset that is not given out yet": ("$stream/mqtt/a", {"start": "offset:999999999"}, 0x83),
    "too deep": ("$stream/mqtt/" + "a/" * 200, {}, 0x8F),
}


@pytest.mark.parametrize(("topic_filter", "said", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_invalid_replay_is_refused_with_its_reason(
    server: MqttServer, topic_filter: str, said: dict[str, Any], reason: int
) -> None:
    with reader(server.address, "refused") as client:
        assert replay(client, topic_filter, "plain", **said) == (reason, 1)
        client.expect_silence()
    if not said:
        with reader(server.address, "refused", 4) as client:
            assert client.subscribe(topic_filter) == (0x80,)


def test_publish_to_a_stream_is_refused_and_wildcards_do_not_match_streams(server: MqttServer) -> None:
    with reader(server.address, "intruder") as client:
        client.send(Publish("$stream/mqtt/a", b"x", 1, packet_id=1))
        assert client.expect(packets.Puback).reason == 0x90


@pytest.mark.parametrize("level", [4, 5])
def test_persistent_session_continues_its_replay(server: MqttServer, level: int) -> None:
    topic = f"resume/{level}"
    asked = f"$stream/mqtt/@earliest/{topic}"
    publish(server, topic, range(30))
    with reader(server.address, f"resume{level}", level, lasting=True) as client:
        client.subscribe(asked)
        first = client.receive(30, acknowledge=False)
        client.send(*[packets.Puback(one.packet_id) for one in first[:10]])
        client.expect_silence()
    publish(server, topic, range(30, 40))
    with reader(server.address, f"resume{level}", level, lasting=True) as client:
        client.send(
            packets.Subscribe(9, (Request(asked, 1),))
        )  # what clients do; it is not from the beginning again
        received: list[Publish] = []
        answered = False
        while len(received) < 30 or not answered:
            packet = client.next_packet()
            answered = answered or isinstance(packet, packets.Suback)
            if isinstance(packet, Publish):
                received.append(packet)
                client.send(packets.Puback(packet.packet_id))
        assert numbers(received) == list(range(10, 40))
        assert [one.duplicate for one in received] == [True] * 20 + [False] * 10
        assert [one.packet_id for one in received[:20]] == [one.packet_id for one in first[10:]]
        if level == MQTT_5:
            offsets = [int(place["offset"]) for place in places(received)]
            assert offsets == sorted(offsets) and len(set(offsets)) == 30
        if level == MQTT_5:
            assert replay(client, asked, stream_reset="true") == (1,)
            assert numbers(collect(40, client)[0]) == list(range(40))


def test_replay_begins_again_after_unsubscribing(server: MqttServer) -> None:
    publish(server, "anew", range(10))
    with reader(server.address, "anew", room=3) as client:
        client.subscribe("$stream/mqtt/@earliest/anew")
        held = client.receive(3, acknowledge=False)
        client.send(packets.Unsubscribe(8, ("$stream/mqtt/@earliest/anew",)))
        client.expect(packets.Unsuback)
        client.send(*[packets.Puback(one.packet_id) for one in held])
        client.expect_silence()
        client.subscribe("$stream/mqtt/@earliest/anew")
        assert numbers(collect(10, client)[0]) == list(range(10))


@pytest.mark.slow
@pytest.mark.parametrize("level", [4, 5])
def test_first_delivery_reports_offsets_deleted_by_retention(
    tmp_path: Path, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    with mqtt_server(tmp_path) as server:
        log = server.store.log(LOG)
        log.configure(retention_bytes=1, segment_entries=10)
        with reader(server.address, "away", level, lasting=True, room=5) as client:
            for number in range(15):
                publish(server, "gap", range(number, number + 1))
            client.subscribe("$stream/mqtt/@earliest/gap")
            client.receive(5)
        for number in range(15, 60):
            publish(server, "gap", range(number, number + 1))
        wait_for(lambda: log.apply_retention() is not None and log.start_offset >= 40)
        first = log.start_offset
        for name, start, told in (
            ("away", None, True), ("past", "@offset:3", True), ("old", "@time:1980-01-01T00:00:00Z", True),
            ("oldest", "@earliest", False),
        ):  # fmt: skip
            with reader(server.address, name, level, lasting=name == "away") as client:
                if start is not None:
                    assert client.subscribe(f"$stream/mqtt/{start}/gap") == (1,)
                received = collect(60 - first, client)[0]
                assert numbers(received) == list(range(first, 60)), name
                if level == MQTT_5:
                    gaps = [place.get("stream-gap") for place in places(received)]
                    assert gaps == [str(first) if told else None, *[None] * (59 - first)], name
    said = "\n".join(line for line in caplog.messages if f"its replay begins at offset {first}" in line)
    assert [name for name in ("past", "old", "oldest") if repr(name) in said] == ["past", "old"]


def test_delivery_after_a_lost_segment_reports_the_gap(tmp_path: Path) -> None:
    """The index of a segment in the middle was lost, and a replay silently continued behind it."""
    with mqtt_server(tmp_path) as server:
        log = server.store.log(LOG)
        log.configure(segment_entries=10)
        for number in range(30):
            publish(server, "gap", range(number, number + 1))
        wait_for(lambda: log.synced_offset == log.end_offset)
        base = log.segment_list.segments[1].base_offset
        (left,) = [end for first, end in log.segment_bounds() if first == base]
    (tmp_path / f"{LOG}-0" / f"{base:020d}.index").unlink()
    with mqtt_server(tmp_path) as server, reader(server.address, "after") as client:
        client.subscribe("$stream/mqtt/@earliest/gap")
        received = collect(30 - (left - base), client)[0]
        assert numbers(received) == [*range(base), *range(left, 30)]
        gaps = [place.get("stream-gap") for place in places(received)]
        assert gaps == [*[None] * base, str(left), *[None] * (29 - left)]


def saved_offset(store: Path, client_id: str) -> int:
    """The lowest offset that the saved session, which has one feed, has still to be acknowledged."""
    with timestone.view(store) as view:
        document = view.documents("mqtt.session").get(client_id, b"")
    feeds = json.loads(document[20:])["logs"] if document else {}
    return min(
        [
            min([offset for _, offset, _ in feed["in_flight"]], default=feed["seen"])
            for feed in feeds.values()
        ],
        default=-1,
    )


@pytest.mark.crash
def test_replay_loses_nothing_when_the_server_is_killed(tmp_path: Path) -> None:
    server = MqttProcess(tmp_path)
    with reader(server.address, "p") as publisher:
        for number in range(200):
            publisher.publish("kill", b"%d" % number)
    client = reader(server.address, "r", lasting=True, room=50)
    client.subscribe("$stream/mqtt/@earliest/kill")
    done = numbers(client.receive(40) + client.receive(40) + client.receive(40))
    wait_for(lambda: saved_offset(tmp_path, "r") == 120)
    server.kill()
    server = MqttProcess(tmp_path)
    with reader(server.address, "r", lasting=True) as client:
        received = numbers(collect(80, client)[0])
    assert done + received == list(range(200))
    server.kill()


def test_replay_skips_forbidden_topics_and_is_refused_when_all_are_forbidden(
    tmp_path: Path,
) -> None:
    (tmp_path / "acl").write_text("topic readwrite open/#\ntopic write closed/#\n")
    with mqtt_server(tmp_path / "data", acl_file=tmp_path / "acl") as server:
        for topic in ("open/a", "closed/a"):
            publish(server, topic, range(3))
        with reader(server.address, "acl") as client:
            filters = ("$stream/mqtt/@earliest", "$stream/mqtt/@earliest/closed/#", "$share/g/closed/#",
                       "$queue/g/$stream/mqtt/closed/a")  # fmt: skip
            assert client.subscribe(*filters) == (1, 0x87, 0x87, 0x87)
            assert {one.topic for one in collect(3, client)[0]} == {"open/a"}


def test_replay_reads_one_log_with_its_own_offsets(tmp_path: Path) -> None:
    with mqtt_server(tmp_path, routes=(Route(filter="other/#", log="other"),)) as server:
        publish(server, "other/a", range(3))
        publish(server, "a", range(3, 6))
        with reader(server.address, "one") as client:
            client.subscribe("$stream/other/@earliest", "$stream/mqtt/@earliest")
            received = collect(6, client)[0]
            found = {(place["log"], place["offset"]) for place in places(received)}
            assert found == {(log, str(offset)) for log in ("other", "mqtt") for offset in range(3)}


def test_queue_begins_at_the_requested_place_when_it_is_created(server: MqttServer) -> None:
    publish(server, "work", range(10))
    with reader(server.address, "w1") as one, reader(server.address, "w2") as two:
        assert replay(one, "$queue/work/work", start="earliest") == (1,)
        assert replay(two, "$queue/work/work", start="earliest") == (1,)
        both = collect(10, one, two)
        assert sorted(numbers(both[0]) + numbers(both[1])) == list(range(10))
        assert replay(two, "$share/team/$stream/mqtt/@earliest/work") == (1,)
        received = collect(10, two)[0]
        assert numbers(received) == list(range(10)) and places(received)[0]["log"] == "mqtt"
        assert replay(one, "$share/plain/work", start="earliest") == (1,)
        one.expect_silence()


@pytest.mark.slow
def test_replay_skips_expired_records(server: MqttServer) -> None:
    with reader(server.address, "expiring") as client:
        for number, expiry_s in enumerate((1, None, 1000)):
            wanted = Properties(message_expiry_interval=expiry_s)
            client.send(Publish("expired", b"%d" % number, 1, packet_id=1, properties=wanted))
            client.expect(packets.Puback)
        time.sleep(1.1)
        client.subscribe("$stream/mqtt/@earliest/expired")
        assert numbers(collect(2, client)[0]) == [1, 2]


@pytest.mark.parametrize("level", [4, 5])
def test_paho_uses_a_replay(server: MqttServer, level: int) -> None:
    with PahoClient(f"replay{level}", level=level) as client:
        assert client.connect(server.address) == 0
        for number in range(5):
            client.publish(f"paho-replay/{level}", b"%d" % number)
        if level == MQTT_5:
            properties = PahoProperties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]
            properties.UserProperty = [("stream-offset", "earliest")]
            client.client.subscribe(f"$stream/mqtt/paho-replay/{level}", 1, properties=properties)
        else:
            client.client.subscribe(f"$stream/mqtt/@earliest/paho-replay/{level}", 1)
        received = [client.messages.get(timeout=TIMEOUT_S) for _ in range(5)]
        assert [int(one.payload) for one in received] == list(range(5))
        if level == MQTT_5:
            assert dict(received[0].properties.UserProperty)["log"] == "mqtt"  # type: ignore[union-attr]


def test_session_resumes_with_a_smaller_window_after_acknowledging_out_of_order_while_segments_roll(
    tmp_path: Path,
) -> None:
    """Exactly the unacknowledged messages are delivered again, under their packet ids, never more at a time than the
    client accepts now, while appends roll segments."""
    with mqtt_server(tmp_path) as server:
        server.store.log(LOG).configure(segment_entries=20)
        for first in range(0, 100, 10):
            publish(server, "roll", range(first, first + 10))
        with reader(server.address, "less", lasting=True, room=60) as client:
            client.subscribe("$stream/mqtt/@earliest/roll")
            sent = client.receive(60, acknowledge=False)
            left = [one for number, one in enumerate(sent) if number % 3 == 1]
            client.send(*[packets.Puback(one.packet_id) for one in sent if one not in left])
            more = client.receive(40, acknowledge=False)
            client.send(*[packets.Puback(one.packet_id) for one in reversed(more)])
            client.expect_silence()
        publish(server, "roll", range(100, 150))
        with reader(server.address, "less", lasting=True, room=4) as client:
            received: list[Publish] = []
            while len(received) < len(left) + 50:
                part = client.receive(min(4, len(left) + 50 - len(received)), acknowledge=False)
                client.expect_silence()
                received += part
                client.send(*[packets.Puback(one.packet_id) for one in part])
            assert numbers(received) == [*numbers(left), *range(100, 150)]
            again = received[: len(left)]
            assert [one.packet_id for one in again] == [one.packet_id for one in left]
            assert all(one.duplicate for one in again) and not any(
                one.duplicate for one in received[len(left) :]
            )


def test_replay_far_behind_does_not_delay_live_messages(server: MqttServer) -> None:
    log = server.store.log(LOG)
    topic_id = log.topic_id("behind")
    for _ in range(10):
        log.append_batch(WriteBatch([b"x" * 100] * 10_000, topic_id, flags=2), ack="written")
    with reader(server.address, "behind") as behind, reader(server.address, "live") as live:
        live.subscribe("live/now")
        behind.subscribe("$stream/mqtt/@earliest/behind")
        publish(server, "live/now", range(20))
        assert numbers(live.receive(20)) == list(range(20))
        for _ in range(2):
            behind.receive(1_000)
            publish(server, "live/now", range(20, 21))
            assert numbers(live.receive(1)) == [20]
