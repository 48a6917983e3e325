import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from timestone_cli.server.service_manager import VARIABLE, ServiceManager


@pytest.fixture(params=["in the file system", "abstract"])
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A socket as systemd listens on, and what it calls it."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.settimeout(60)
        listening.bind(path if request.param == "in the file system" else "\0" + path)
        yield listening, path if request.param == "in the file system" else "@" + path


def test_ready_is_said_with_who_listens(listener: tuple[socket.socket, str]) -> None:
    listening, address = listener
    ServiceManager({VARIABLE: address}).ready("mqtt on 127.0.0.1:1883")
    assert listening.recv(4096) == b"READY=1\nSTATUS=mqtt on 127.0.0.1:1883"


def test_store_that_takes_long_to_open_asks_for_patience(listener: tuple[socket.socket, str]) -> None:
    listening, address = listener
    ServiceManager({VARIABLE: address}).opening("telemetry-0", 3, 40)
    assert listening.recv(4096).splitlines() == [
        b"EXTEND_TIMEOUT_USEC=30000000",
        b"STATUS=opening telemetry-0: 3 of 40 segments looked at",
    ]


@pytest.mark.parametrize("environment", [{}, {VARIABLE: ""}])
def test_nothing_is_sent_without_a_service_manager(
    environment: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    ServiceManager(environment).ready("")
    assert caplog.records == []


def test_a_missing_service_manager_does_not_stop_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        ServiceManager({VARIABLE: str(tmp_path / "gone")}).ready("")
    assert "the service manager cannot be notified (NOTIFY_SOCKET)" in caplog.text
