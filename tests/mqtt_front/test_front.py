"""The front as `serve` uses it: started, described, stopped, started again, and killed."""

import random
import threading
from functools import partial
from pathlib import Path

import pytest

import timestone
from mqtt_front import MqttFront, MqttSettings, Route
from mqtt_front.codec import packets
from mqtt_front.codec.packets import Disconnect, Puback, Publish, Will
from mqtt_front.codec.properties import Properties
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_process import MqttProcess
from tests.support.mqtt_server import MqttServer, mqtt_server
from tests.support.waiting import TIMEOUT_S, wait_for, wait_for_seals
from timestone.config import LogConfig


def test_front_logs_its_address_and_ack_level(tmp_path: Path) -> None:
    routes = (Route(filter="a/#", log="a"),)
    with mqtt_server(tmp_path, routes=routes, ack="written") as server:
        host, port = server.address
        lines = server.front.describe()
        assert lines[0] == f"mqtt on {host}:{port}, MQTT 3.1, 3.1.1 and 5, ack written, anonymous"
        assert lines[1:] == ["mqtt a/# to log a", "mqtt other topics to log mqtt"]
        assert server.status()["ack"] == "written"
    assert MqttFront.name == "mqtt"
    assert MqttFront.settings() is MqttSettings


def test_packet_limit_must_fit_the_record_limit_of_the_log(tmp_path: Path) -> None:
    small = LogConfig(record_bytes=1000)
    with (
        timestone.open(tmp_path / "data", log=small) as store,
        pytest.raises(ValueError, match=r"invalid record_bytes of log mqtt: .*, got 1000"),
        mqtt_server(tmp_path, store=store),
    ):
        pass


def test_stop_acknowledges_publishes_sends_disconnect_and_publishes_wills(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store:
        with mqtt_server(tmp_path, store=store) as server:
            new, old = RawClient(server.address, 5), RawClient(server.address, 4)
            new.connect("new", will=Will("will", b"bye"))
            old.connect("old", clean=False)
            old.send(*[Publish("t", b"%d" % n, 1, packet_id=n) for n in range(1, 100)])
            old.expect(Puback)
        assert new.expect(Disconnect).reason == 0x8B
        new.expect_closed()
        acknowledged = 1
        while isinstance(old.next_packet(), Puback):
            acknowledged += 1
        topics = [record.topic for record in store.log("mqtt").reader()]
        assert topics.count("t") >= acknowledged
        assert topics[-1] == "will"
        new.close()
        old.close()


def test_stop_ends_with_a_client_that_reads_nothing(tmp_path: Path) -> None:
    with mqtt_server(tmp_path) as server, RawClient(server.address) as deaf:
        deaf.connect("deaf")
        deaf.subscribe("#")
        with RawClient(server.address) as publisher:
            publisher.connect("publisher")
            for number in range(1, 60):
                publisher.publish("t", b"x" * 200_000, packet_id=number)


@pytest.mark.parametrize("level", [4, 5])
def test_session_continues_after_a_restart(tmp_path: Path, level: int) -> None:
    lasting = Properties(session_expiry_interval=0xFFFFFFFF) if level == 5 else None
    with mqtt_server(tmp_path) as server:
        with RawClient(server.address, level) as client:
            client.connect("away", clean=False, properties=lasting)
            assert client.subscribe("s/+") == (1,)
            client.publish("s/1", b"1")
            client.publish("s/1", b"2")
            first, second = client.receive(2, acknowledge=False)
            client.send(Puback(second.packet_id))
            client.expect_silence()
        with RawClient(server.address) as other:
            other.connect("other")
            other.publish("s/2", b"3")
    with mqtt_server(tmp_path) as server:
        with RawClient(server.address) as other:
            other.connect("other")
            other.publish("s/2", b"4")
        with RawClient(server.address, level) as client:
            assert client.connect("away", clean=False, properties=lasting).session_present
            received = client.receive(3)
            assert [(one.payload, one.duplicate) for one in received] == [
                (b"1", True),
                (b"3", False),
                (b"4", False),
            ]
            assert received[0].packet_id == first.packet_id
            client.expect_silence()
        with RawClient(server.address, level) as client:
            client.connect("away", clean=False, properties=lasting)
            client.expect_silence()


def _nobody_is_connected(server: MqttServer) -> bool:
    return bool(server.status()["sessions_connected"] == 0)


def test_missed_messages_of_qos_0_are_delivered_only_if_configured(tmp_path: Path) -> None:
    for number, wanted in enumerate((False, True)):
        with mqtt_server(tmp_path / str(number), deliver_missed_qos0=wanted) as server:
            with RawClient(server.address) as client:
                client.connect("away", clean=False)
                client.subscribe("s")
            wait_for(partial(_nobody_is_connected, server))
            with RawClient(server.address) as other:
                other.connect("other")
                other.send(Publish("s", b"at 0"))
                other.publish("s", b"at 1")
            with RawClient(server.address) as client:
                client.connect("away", clean=False)
                expected = [b"at 0", b"at 1"] if wanted else [b"at 1"]
                assert [one.payload for one in client.receive(len(expected))] == expected
                client.expect_silence()


class Publisher(threading.Thread):
    """Publishes counted payloads until the server is gone; records which were acknowledged."""

    def __init__(self, address: tuple[str, int], first: int) -> None:
        super().__init__()
        self.client = RawClient(address)
        self.client.connect("publisher")
        self.first = first
        self.acknowledged: list[int] = []

    def run(self) -> None:
        number = self.first
        while True:
            window = range(number, number + 20)
            try:
                self.client.send(*[Publish("k", b"%d" % n, 1, packet_id=n % 60_000 + 1) for n in window])
                for n in window:
                    if not isinstance(self.client.next_packet(), Puback):
                        return
                    self.acknowledged.append(n)
            except OSError:
                return
            number = window.stop


@pytest.mark.crash
def test_killed_front_loses_no_acknowledged_message_and_sessions_are_complete(tmp_path: Path) -> None:
    """Kill -9 while one client publishes and a persistent one receives and acknowledges now and then: every
    acknowledged publish is in the log, once and in order, and reaches the session, in order apart from repetitions."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    acknowledged: list[int] = []
    received: list[int] = []
    for round_number in range(4):
        server = MqttProcess(tmp_path)
        subscriber = RawClient(server.address)
        present = subscriber.connect("subscriber", clean=False).session_present
        assert present is (round_number > 0)
        if not present:
            subscriber.subscribe("k")
        publisher = Publisher(server.address, first=round_number * 1_000_000)
        publisher.start()
        wanted = chance.randrange(50, 1500)
        while len(publisher.acknowledged) < wanted:
            packet = subscriber.next_packet()
            assert isinstance(packet, Publish)
            received.append(int(packet.payload))
            if chance.random() < 0.9:
                subscriber.send(Puback(packet.packet_id))
        server.kill()
        publisher.join(TIMEOUT_S)
        assert not publisher.is_alive()
        publisher.client.close()
        subscriber.close()
        acknowledged += publisher.acknowledged
    with timestone.open(tmp_path) as store:
        stored = [int(record.payload) for record in store.log("mqtt").reader()]
        assert stored == sorted(set(stored))
        assert set(acknowledged) <= set(stored)
        with mqtt_server(tmp_path, store=store) as last, RawClient(last.address) as subscriber:
            assert subscriber.connect("subscriber", clean=False).session_present
            while stored[-1] not in received[-1:]:
                packet = subscriber.expect(Publish)
                received.append(int(packet.payload))
                subscriber.send(Puback(packet.packet_id))
    firsts = list(dict.fromkeys(received))
    assert firsts == stored, "every record once apart from repetitions, in the order of the log"


@pytest.mark.crash
def test_subscription_is_durable_when_suback_is_sent(tmp_path: Path) -> None:
    server = MqttProcess(tmp_path)
    with RawClient(server.address) as client:
        client.connect("c", clean=False)
        client.subscribe("a", "b")
        client.send(packets.Unsubscribe(1, ("b",)))
        client.expect(packets.Unsuback)
        server.kill()
    server = MqttProcess(tmp_path)
    with RawClient(server.address) as client, RawClient(server.address) as other:
        assert client.connect("c", clean=False).session_present
        other.connect("other")
        other.publish("b", b"no")
        other.publish("a", b"yes")
        assert [one.payload for one in client.receive(1)] == [b"yes"]
        client.expect_silence()
    server.kill()


def test_absent_session_gets_the_records_that_compaction_kept(tmp_path: Path) -> None:
    """Of the records between its offset and the end, only the last of each topic remain; it gets those, once each and
    in order, and then the new ones."""
    config = LogConfig(segment_entries=8, compact=True)
    with (
        timestone.open(tmp_path / "data", log=config) as store,
        mqtt_server(tmp_path, store=store) as server,
        RawClient(server.address) as publisher,
    ):
        publisher.connect("publisher")
        with RawClient(server.address) as away:
            away.connect("away", clean=False)
            away.subscribe("devices/#")
            for number in range(3):
                publisher.publish(f"devices/{number}", b"%d" % number)
            assert [one.payload for one in away.receive(3)] == [b"0", b"1", b"2"]
        for number in range(3, 60):
            publisher.publish(f"devices/{number % 5}", b"%d" % number)
        log = store.log("mqtt")
        log.roll()
        wait_for_seals(log)
        log.apply_compaction()
        left = [record.payload for record in log.reader("earliest")]
        assert left == [b"%d" % number for number in range(55, 60)]
        with RawClient(server.address) as back:
            back.connect("away", clean=False)
            assert [one.payload for one in back.receive(5)] == left
            publisher.publish("devices/9", b"new")
            assert [one.payload for one in back.receive(1)] == [b"new"]
