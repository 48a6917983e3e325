from pathlib import Path

import pytest

from tests.support.flight_server import flight_server
from tests.support.mqtt_server import mqtt_server
from timestone_bench.flight.latency import follower_s, puback_s, reading


@pytest.mark.slow
def test_latencies_are_measured_beside_a_reader_that_reads(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server, mqtt_server(tmp_path, store=server.store) as broker:
        server.store.log("t").append(b"x")
        with reading(server.address, '{"log": "t"}'):
            assert puback_s(f"{broker.address[0]}:{broker.address[1]}", 20) > 0
            assert follower_s(server.address, "t", 5) > 0
        assert server.calls.counts.calls["DoGet"] > 1
