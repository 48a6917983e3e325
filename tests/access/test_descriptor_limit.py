"""Descriptors for as many connections as the settings allow, if the system permits."""

import logging
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mqtt_server import mqtt_server
from timestone_access.descriptor_limit import allow_open_files


@pytest.fixture
def hard() -> Iterator[int]:
    """The hard limit, while the soft one is low."""
    soft, hard = before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or soft < 1000:
        pytest.skip("the limits of this system leave nothing to try")
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def soft_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_descriptor_limit_is_raised_as_needed_and_never_lowered(hard: int) -> None:
    assert allow_open_files(700) is None and soft_limit() == 700
    assert allow_open_files(600) is None and soft_limit() == 700
    assert allow_open_files(hard + 1) == hard == soft_limit()


def test_server_raises_the_descriptor_limit_or_logs_that_it_cannot(
    hard: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with mqtt_server(tmp_path / "some", connection_count=500):
        assert soft_limit() == 500 + 1000 and caplog.text == ""
    with (
        caplog.at_level(logging.WARNING, "timestone.mqtt"),
        mqtt_server(tmp_path / "many", connection_count=hard),
    ):
        assert f"this system allows {hard}" in caplog.text
