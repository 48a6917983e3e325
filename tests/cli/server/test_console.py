"""The console of a server, as a process that the first connection starts."""

import json
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import Running
from tests.cli.processes import timestone as command
from timestone_cli.server.console import is_installed

SERVE = ("serve", "--data", "data", "--mqtt", "127.0.0.1:0", "--ready-file", "ready.json")


@contextmanager
def server(path: Path, *words: str) -> Iterator[tuple[Running, dict[str, Any]]]:
    with Running(*SERVE, *words, cwd=path) as running:
        yield running, running.wait_for_json(path / "ready.json")


def asked(address: str, path: str = "me") -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{address}/api/v1/{path}", timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(one) for one in listed if b"--inherited" in Path(f"/proc/{one}/cmdline").read_bytes()]


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_console_starts_at_the_first_visit_and_comes_back_when_it_is_killed(tmp_path: Path) -> None:
    with server(tmp_path, "--console", "127.0.0.1:0") as (running, ready):
        pid = running.process.pid
        assert children(pid) == []
        assert asked(ready["console"])["role"] == "reader"
        (console,) = children(pid)
        assert os.getpriority(os.PRIO_PROCESS, console) >= 10
        assert asked(ready["console"], "overview")["server"]["pid"] == pid
        os.kill(console, signal.SIGKILL)
        assert asked(ready["console"])["role"] == "reader"
        assert children(pid) != [console]
        (console,) = children(pid)
        code, out, err = running.stop()
        assert code == 0 and f"console on http://{ready['console']}" in out
        assert "Fatal" not in out + err
        until(lambda: not Path(f"/proc/{console}").exists())


@pytest.mark.slow
def test_console_ends_with_a_server_that_is_killed(tmp_path: Path) -> None:
    with server(tmp_path, "--console", "127.0.0.1:0") as (running, ready):
        asked(ready["console"])
        (console,) = children(running.process.pid)
        running.process.kill()
        until(lambda: not Path(f"/proc/{console}").exists())


@pytest.mark.slow
def test_console_asks_for_a_login_when_clients_have_passwords(tmp_path: Path) -> None:
    assert command("passwd", "passwords", "anna", stdin=b"secret\n", cwd=tmp_path).returncode == 0
    (tmp_path / "acl").write_text("user anna\ntopic read site/#\n")
    users = 'console.users = { anna = "reader" }\n[mqtt]\npassword_file = "passwords"\nacl_file = "acl"\n'
    (tmp_path / "settings.toml").write_text(users)
    with server(tmp_path, "--console", "127.0.0.1:0", "--config", "settings.toml") as (_, ready):
        assert asked(ready["console"])["role"] == "none" and asked(ready["console"])["can_login"]

        def login(password: str) -> int:
            request = urllib.request.Request(
                f"http://{ready['console']}/api/v1/login",
                json.dumps({"user": "anna", "password": password}).encode(),
                {"Content-Type": "application/json"},
            )
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    assert json.load(answer)["role"] == "reader"
                    return int(answer.status)
            except urllib.error.HTTPError as error:
                error.close()
                return error.code

        assert [login("wrong"), login("secret")] == [401, 200]


@pytest.mark.slow
def test_busy_address_is_an_error_if_it_was_asked_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = command(*SERVE, "--console", address, cwd=tmp_path)
        assert done.returncode == 1 and f"console: cannot listen on {address}" in done.stderr


@pytest.mark.slow
def test_server_without_a_console_has_none(tmp_path: Path) -> None:
    with server(tmp_path, "--console", "none") as (_, ready):
        assert "console" not in ready


def test_server_loads_nothing_of_the_console() -> None:
    assert is_installed()
    names = ("timestone_console", "starlette", "uvicorn", "h11", "msgspec")
    probe = f"import sys, timestone_cli.commands.serve; print([n for n in {names} if n in sys.modules])"
    with Running("-c", probe, cwd=Path.cwd(), command=[sys.executable]) as running:
        assert running.line() == "[]"
