"""Which node of a cluster is asked. With real nodes: tests/cluster/test_spark.py."""

from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from pyspark_timestone.flight.places import Places
from pyspark_timestone.options.flight_server import FlightServer
from tests.support.flight_server import flight_server


def test_all_addresses_are_named_when_no_node_answers() -> None:
    places = Places(FlightServer("127.0.0.1:1", nodes=("127.0.0.1:1", "127.0.0.1:2")))
    for ask in (places.any_node, places.leaders, lambda: places.leader(0), lambda: places.replica(0)):
        with pytest.raises(fl.FlightUnavailableError, match="no node of the cluster answers") as refused:
            ask()
        assert "127.0.0.1:1: " in str(refused.value) and "127.0.0.1:2: " in str(refused.value)


def test_server_that_is_in_no_cluster_is_refused_at_once(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server:
        places = Places(FlightServer("127.0.0.1:1", nodes=("127.0.0.1:1", server.address)))
        with pytest.raises(pa.ArrowNotImplementedError, match="this server is in no cluster"):
            places.any_node()
