"""The process of the gateway by itself: what it is given, and what it answers."""

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from flight_front.gateway.batch_memory import new_memory
from flight_front.gateway.process import Start
from flight_front.settings import FlightSettings
from tests.support.waiting import TIMEOUT_S

pytestmark = pytest.mark.slow


def answer(start: Start) -> dict[str, object]:
    """Return the first line of a process whose standard input ends after its start."""
    fd = new_memory()
    ended = subprocess.run(
        [sys.executable, "-m", "flight_front.gateway.main"], pass_fds=(fd,),
        input=replace(start, memory=fd).encode(), stdout=subprocess.PIPE, timeout=TIMEOUT_S, check=True,
    )  # fmt: skip
    os.close(fd)
    found: dict[str, object] = json.loads(ended.stdout.splitlines()[0])
    return found


def test_process_says_its_port_or_why_it_does_not_listen_and_ends_with_its_input(tmp_path: Path) -> None:
    folder = tmp_path / "socket"
    folder.mkdir()
    listener = FlightSettings(listen="127.0.0.1:0").listener
    start = Start(listener, tmp_path / "data", f"unix:{folder}/server")
    port = answer(start)["port"]
    assert isinstance(port, int) and port > 0
    assert not folder.exists()  # of a server that was killed
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused = answer(replace(start, settings=replace(listener, listen=address)))["refused"]
    assert str(refused).startswith(f"cannot listen on {address}")


def test_start_is_the_same_after_it_was_passed_on() -> None:
    settings = FlightSettings(listen="127.0.0.1:0", certificate=Path("c.pem"), key=Path("k.pem"))
    start = Start(settings.listener, Path("/data"), "unix:/x/server")
    assert Start.decode(start.encode()) == start
