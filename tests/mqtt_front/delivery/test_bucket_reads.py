"""Sessions and replays that are behind the local start of their log: read from a bucket, and waiting for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import timestone
from tests.mqtt_front.feeds.test_shared_feed import collect, numbers, publish
from tests.mqtt_front.feeds.test_stream_feed import reader, replay
from tests.support.buckets import FaultyBucket
from tests.support.mqtt_server import MqttServer, mqtt_server
from tests.support.waiting import wait_for, wait_for_seals
from timestone import Log, LogConfig
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.config import TierConfig
from timestone_tiering.tier import StoreTier

COUNT = 100


@pytest.fixture
def bucket(tmp_path: Path) -> FaultyBucket:
    return FaultyBucket(FolderBucket(tmp_path / "bucket"))


@pytest.fixture
def server(tmp_path: Path, bucket: FaultyBucket) -> Iterator[MqttServer]:
    """A server whose log keeps its last ten records on the disk, with a session that has missed all."""
    config = LogConfig(segment_entries=10, local_retention_bytes=1)
    with timestone.open(tmp_path / "data", tail_bytes=0, log=config) as store:
        log = store.log("mqtt")
        with (
            StoreTier(store, TierConfig(url=bucket.url), bucket=bucket) as tier,
            mqtt_server(tmp_path, store=store) as server,
        ):
            with reader(server.address, "behind", lasting=True) as client:
                client.subscribe("h/+")
            for first in range(0, COUNT, 10):
                publish(server, "h/1", range(first, first + 10))
            wait_for_seals(log)
            wait_for(lambda: tier.log_status() and tier.log_status()[0].end >= COUNT - 10)
            wait_for(lambda: log.local_start_offset >= COUNT - 20)
            yield server


def remote_log(server: MqttServer) -> Log:
    return server.store.log("mqtt")


def test_a_session_far_behind_gets_everything_from_the_bucket(server: MqttServer) -> None:
    assert remote_log(server).start_offset == 0
    with reader(server.address, "behind", lasting=True) as client:
        (received,) = collect(COUNT, client)
    assert numbers(received) == list(range(COUNT))


def test_a_replay_begins_in_the_bucket(server: MqttServer) -> None:
    log = remote_log(server)
    time_us = log.record(25).timestamp_us
    for start, first in (("earliest", 0), ("offset:42", 42), (f"{time_us}", log.offset_at(time_us))):
        with reader(server.address, f"replay-{first}") as client:
            assert replay(client, "$stream/mqtt/h/+", start=start) == (1,)
            (received,) = collect(COUNT - first, client)
        assert numbers(received) == list(range(first, COUNT))


@pytest.mark.slow
def test_a_bucket_that_is_away_delays_only_what_it_has(server: MqttServer, bucket: FaultyBucket) -> None:
    bucket.fail_at, bucket.stays_away = len(bucket.calls), True
    with (
        reader(server.address, "behind", lasting=True) as behind,
        reader(server.address, "local") as local,
    ):
        replay(local, "$stream/mqtt/h/+", start=f"offset:{COUNT - 5}")
        publish(server, "h/2", range(COUNT, COUNT + 3))
        (received, _) = collect(8, local, behind)
        assert numbers(received) == list(range(COUNT - 5, COUNT + 3))
        bucket.stays_away = False
        (received,) = collect(COUNT + 3, behind)
        assert numbers(received) == list(range(COUNT + 3))
