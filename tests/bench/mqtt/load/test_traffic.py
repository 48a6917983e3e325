"""One process of the load against a real server: what was published is in its log, and came out again."""

import random
import time
from pathlib import Path
from typing import cast

import pytest

from tests.support.mqtt_server import mqtt_server
from timestone_bench.mqtt.load.job import Job
from timestone_bench.mqtt.load.subscriber import Subscriber
from timestone_bench.mqtt.load.traffic import Slowest, Traffic


@pytest.mark.parametrize("qos", [0, 1])
def test_everything_published_is_stored_and_delivered(tmp_path: Path, qos: int) -> None:
    with mqtt_server(tmp_path) as server:
        host, port = server.address
        job = Job(
            scheme="mqtt", host=host, port=port, run="r", payload_bytes=50, qos=qos, messages=500, window=20,
            publishers=(0, 3), publisher_count=3, subscribers=(0, 2), topics=2,
        )  # fmt: skip
        traffic = Traffic(job)
        report = traffic.run(time.monotonic_ns())
        traffic.close()
        records = [record for record in server.store.log("mqtt").reader() if record.topic != "bench-end/r"]
    assert (report.sent, report.received, report.lost, report.duplicates, report.reordered) == (
        1500,
        3000,
        0,
        0,
        0,
    )
    assert report.acknowledged == (1500 if qos else 0)
    assert len(records) == 1500 and {len(record.payload) for record in records} == {50}
    assert {record.topic for record in records} == {
        f"bench/r/{publisher:06}/{topic:06}" for publisher in range(3) for topic in range(2)
    }


def test_what_does_not_come_is_lost_after_a_while(tmp_path: Path) -> None:
    with mqtt_server(tmp_path) as server:
        host, port = server.address
        job = Job(
            scheme="mqtt", host=host, port=port, run="r", payload_bytes=50, qos=0, messages=10,
            publisher_count=1, subscribers=(0, 1), stall_s=0.2,
        )  # fmt: skip
        report = Traffic(job).run(time.monotonic_ns())
    assert (report.received, report.lost) == (0, 10)


class Counted:
    """Subscriber that counts how often its progress is read."""

    def __init__(self) -> None:
        self.messages = self.reads = 0

    @property
    def received(self) -> int:
        self.reads += 1
        return self.messages


def test_slowest_is_the_least_of_all_in_any_order_of_progress() -> None:
    chance = random.Random(16)
    subscribers = [Counted() for _ in range(20)]
    slowest = Slowest(cast(list[Subscriber], subscribers))
    for _ in range(2000):
        for one in chance.sample(subscribers, chance.randrange(20)):
            one.messages = min(one.messages + chance.randrange(4), 500)
        assert slowest.received() == min(one.messages for one in subscribers)


def test_slowest_reads_each_subscriber_a_few_times_when_all_move_one_after_the_other() -> None:
    subscribers = [Counted() for _ in range(100)]
    slowest = Slowest(cast(list[Subscriber], subscribers))
    for one in subscribers:
        one.messages = 50
        slowest.received()
    assert slowest.received() == 50
    assert sum(one.reads for one in subscribers) <= 500
