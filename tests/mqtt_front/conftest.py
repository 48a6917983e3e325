"""A real store for the tests of the front."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import timestone
from tests.support.mqtt_server import MqttServer, mqtt_server
from timestone.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with timestone.open(tmp_path / "data") as opened:
        yield opened


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqttServer]:
    """One running front for a whole file: its tests use separate topics and client ids."""
    with mqtt_server(tmp_path_factory.mktemp("mqtt")) as running:
        yield running
