"""A server with its gateway, shared by the tests of a module."""

from collections.abc import Iterator

import pytest

from tests.support.flight_server import RunningFlight, flight_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFlight]:
    with flight_server(tmp_path_factory.mktemp("gateway"), gateway=True, batch_bytes=4096) as running:
        yield running


@pytest.fixture
def log(server: RunningFlight, request: pytest.FixtureRequest) -> str:
    """Return the name of a new log."""
    name = f"log-{request.node.name.partition('[')[0][-60:]}".replace("_", "-")
    server.store.log(name)
    return name
