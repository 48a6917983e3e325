"""A real store for the tests of the front."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import timestone
from timestone.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with timestone.open(tmp_path / "data") as opened:
        yield opened
