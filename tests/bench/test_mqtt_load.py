"""The load generator publishes what it says, waits for every acknowledgement, and keeps to its window."""

from pathlib import Path

import pytest

from mqtt_front.codec import packets
from mqtt_front.codec.encode import encode_packet
from tests.support.mqtt_server import mqtt_server
from timestone_bench.mqtt_load import Load, connect, publish, run


def test_everything_published_is_acknowledged_and_stored(tmp_path: Path) -> None:
    load = Load(clients=3, messages=500, window=20, payload_bytes=50)
    with mqtt_server(tmp_path) as server:
        outcome = run(server.address, load)
        records = list(server.store.log("mqtt").reader())
    assert outcome.acknowledged == len(records) == 1500
    assert outcome.rate > 0 and len(outcome.latencies_us) >= 3
    assert {record.topic for record in records} == {"bench/0", "bench/1", "bench/2"}
    assert {len(record.payload) for record in records} == {50}


def test_a_client_that_is_refused_is_an_error(tmp_path: Path) -> None:
    with (
        mqtt_server(tmp_path, connection_count=1) as server,
        pytest.raises(ConnectionError, match="client 1"),
    ):
        run(server.address, Load(clients=2, messages=10))


@pytest.mark.parametrize("size", [0, 100, 127, 128, 20_000])
@pytest.mark.parametrize("qos", [0, 1])
def test_its_packets_are_those_of_the_specification(size: int, qos: int) -> None:
    expected = packets.Publish("t", b"x" * size, qos, packet_id=7 if qos else 0)
    assert publish(b"t", 7, b"x" * size, qos) == encode_packet(expected, 4)
    assert connect("c") == encode_packet(packets.Connect("c", 4), 4)
