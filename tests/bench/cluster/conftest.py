from collections.abc import Iterator
from pathlib import Path

import pytest

from timestone_bench.cluster.own_cluster import OwnCluster, own_cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCluster]:
    """Three nodes that serve MQTT, for all tests that leave them in sync."""
    folder: Path = tmp_path_factory.mktemp("bench") / "cluster"
    with own_cluster(folder, "--mqtt-connects-per-s", "0") as found:
        yield found
