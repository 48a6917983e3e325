"""Kill -9 of the server at random moments under mixed QoS load with persistent sessions.

TIMESTONE_KILL_ROUNDS=50 TIMESTONE_SEED=random pytest tests/mqtt_front/test_kill.py
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import timestone
from mqtt_front.codec import packets
from mqtt_front.codec.packets import Will
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_lasting import LastingClient, LastingPublisher, LastingSubscriber
from tests.support.mqtt_process import MqttProcess
from tests.support.mqtt_server import mqtt_server
from tests.support.seeds import rounds, run_seed, told_on_failure
from tests.support.waiting import TIMEOUT_S, wait_for

ROUNDS = rounds(default=3, variable="TIMESTONE_KILL_ROUNDS")


def run_until_killed(
    path: Path, clients: Sequence[LastingClient], enough: Callable[[], object], **settings: Any
) -> None:
    with MqttProcess(path, **settings) as server:
        threads = [threading.Thread(target=client.run, args=(server.address,)) for client in clients]
        for thread in threads:
            thread.start()
        enough()
        server.kill()
        for thread in threads:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()


def run_until_drained(
    path: Path, publishers: list[LastingPublisher], subscribers: list[LastingSubscriber]
) -> None:
    """Run a last time, until everything is acknowledged and every subscriber has the last message."""
    for publisher in publishers:
        publisher.stopping = True
    done = threading.Event()
    with MqttProcess(path) as server:
        threads = [
            threading.Thread(target=client.run, args=(server.address, done.is_set))
            for client in [*publishers, *subscribers]
        ]
        for thread in threads:
            thread.start()
        try:
            wait_for(lambda: all(publisher.idle for publisher in publishers), 60)
            end = LastingPublisher("last", 4, 10**9, random.Random(0))
            end.go_on = lambda client: None  # type: ignore[method-assign]
            end._in_flight = {1: (10**9, 1)}
            end.run(server.address, lambda: end.idle)
            wait_for(lambda: all(b"1:1000000000" in one.received[-3:] for one in subscribers), 60)
        finally:
            done.set()
            for thread in threads:
                thread.join(TIMEOUT_S)


@pytest.mark.crash
@pytest.mark.timeout(0)
def test_kills_lose_no_acknowledged_message_and_repeat_none_of_qos_2(
    tmp_path: Path,
) -> None:
    seed = run_seed("kill")
    chance = random.Random(seed)
    publishers = [LastingPublisher(f"p{level}", level, level * 100_000_000, chance) for level in (4, 5)]
    subscribers = [LastingSubscriber(f"s{level}-{qos}", level, qos) for level in (4, 5) for qos in (1, 2)]
    with told_on_failure(TIMESTONE_SEED=seed, TIMESTONE_KILL_ROUNDS=ROUNDS):
        run_until_killed(
            tmp_path, subscribers, lambda: wait_for(lambda: all(one.subscribed for one in subscribers))
        )
        for number in range(ROUNDS):

            def enough(last: bool = number == ROUNDS - 1) -> None:
                time.sleep(chance.uniform(0.02, 0.8))
                # At a random moment, which may be before the first answer; but not always.
                wait_for(lambda: not last or all(one.acknowledged for one in publishers))

            run_until_killed(tmp_path, [*subscribers, *publishers], enough)
        run_until_drained(tmp_path, publishers, subscribers)
        with timestone.open(tmp_path) as store:
            log = [record.payload for record in store.log("mqtt").reader()]
        count = Counter(log)
        acknowledged = [number for one in publishers for number in one.acknowledged]
        numbers = {int(payload[2:]) for payload in log}
        assert acknowledged, "the test did nothing"
        assert not set(acknowledged) - numbers, "an acknowledged publish is missing"
        assert [p for p, times in count.items() if p[:1] == b"2" and times > 1] == [], (
            "QoS 2 twice in the log"
        )
        for publisher in publishers:
            mine = [int(p[2:]) for p in log if p[:1] != b"0" and int(p[2:]) // 100_000_000 == publisher.level]
            assert list(dict.fromkeys(mine)) == sorted(set(mine)), "a publisher's order is not kept"
        promised = list(dict.fromkeys(payload for payload in log if payload[:1] != b"0"))
        for subscriber in subscribers:
            received = [payload for payload in subscriber.received if payload[:1] != b"0"]
            assert list(dict.fromkeys(received)) == promised, "a session is not complete in order"
            if subscriber.qos == 2:
                twice = [p for p, times in Counter(received).items() if p[:1] == b"2" and times > 1]
                assert twice == [], "QoS 2 was delivered twice"
        print(f"{ROUNDS} kills: {len(log)} records, {len(acknowledged)} acknowledged at QoS 1 and 2")


class LoneDevice(LastingPublisher):
    """Sends one message at QoS 1 and waits for its PUBACK, and counts how often it sent each."""

    levels = (1,)

    def __init__(self, number: int, level: int, chance: random.Random) -> None:
        super().__init__(f"lone{number}", level, number * 1_000_000, chance, [f"lone/{number}"])
        self.window = 1
        self.sent: Counter[bytes] = Counter()

    def _publish(self, packet_id: int, *, duplicate: bool = False) -> packets.Publish:
        publish = super()._publish(packet_id, duplicate=duplicate)
        self.sent[publish.payload] += 1
        return publish


@pytest.mark.crash
@pytest.mark.timeout(0)
@pytest.mark.parametrize("device_count", [1, 6], ids=["alone", "several"])
@pytest.mark.parametrize("ack", ["written", "synced"])
def test_kills_lose_no_acknowledged_message_of_devices_that_wait_for_each(
    ack: str, device_count: int, tmp_path: Path
) -> None:
    """Each is in the log as published: in order, none left out, and at most as often as its device sent it."""
    seed = run_seed(f"lone {ack} {device_count}")
    chance = random.Random(seed)
    devices = [LoneDevice(number, 4 + number % 2, chance) for number in range(1, device_count + 1)]
    with told_on_failure(TIMESTONE_SEED=seed, TIMESTONE_KILL_ROUNDS=ROUNDS):
        for number in range(ROUNDS):
            known = [len(one.acknowledged) for one in devices]

            def enough(last: bool = number == ROUNDS - 1, known: list[int] = known) -> None:
                time.sleep(chance.uniform(0.01, 0.3))
                pairs = zip(devices, known, strict=True)
                wait_for(lambda: not last or all(len(one.acknowledged) > count for one, count in pairs))

            run_until_killed(tmp_path, devices, enough, ack=ack)
        with timestone.view(tmp_path) as view:
            records = list(view.log("mqtt").reader("earliest"))
        assert [record.offset for record in records] == list(range(len(records)))
        for device in devices:
            topic = f"lone/{device.first // 1_000_000}"
            mine = [record.payload for record in records if record.topic == topic]
            in_order = list(dict.fromkeys(mine))
            assert in_order == [b"1:%d" % (device.first + 1 + at) for at in range(len(in_order))]
            assert {int(payload[2:]) for payload in in_order} >= set(device.acknowledged)
            assert Counter(mine) <= device.sent
            assert sorted(mine, key=in_order.index) == mine, "a repeated message is behind a later one"
            assert all(one.flags == records[0].flags for one in records)
        acknowledged_count = sum(len(one.acknowledged) for one in devices)
        repeated_count = sum(one.sent.total() - len(one.sent) for one in devices)
        print(
            f"{ROUNDS} kills: {len(records)} records, {acknowledged_count} acknowledged, {repeated_count} sent again"
        )


@pytest.mark.crash
def test_each_will_is_published_once_whenever_the_server_is_killed(tmp_path: Path) -> None:
    seed = run_seed("wills")
    chance = random.Random(seed)
    wills: list[bytes] = []
    with told_on_failure(TIMESTONE_SEED=seed, TIMESTONE_KILL_ROUNDS=ROUNDS):
        for number in range(ROUNDS):
            with MqttProcess(tmp_path) as server, timestone.view(tmp_path) as view:
                clients = [RawClient(server.address, 5) for _ in range(100)]
                for client in clients:
                    wills.append(b"%d" % len(wills))
                    topic = f"wills/{len(wills) % 7}"
                    client.connect(f"c{number}-{len(wills)}", will=Will(topic, wills[-1], len(wills) % 3))
                first = view.log("mqtt").end_offset
                for client in clients:
                    client.close()
                while view.log("mqtt").end_offset == first:
                    pass  # not a moment later: the will is in the log, and still kept
                time.sleep(chance.choice((0, 0.001, 0.005)))
                server.kill()
        with mqtt_server(tmp_path):
            pass
        with timestone.open(tmp_path) as store:
            times = Counter(record.payload for record in store.log("mqtt").reader())
    assert times == Counter(wills)
