"""The control socket from outside: permissions, bounds, hostile clients. Other clients of the server stay served."""

import asyncio
import gc
import json
import os
import signal
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

import timestone
from tests.cli.processes import Running
from tests.support.control_server import controlled_server
from tests.support.mqtt_clients import RawClient
from tests.support.waiting import TIMEOUT_S, wait_for
from timestone_cli.control import service
from timestone_cli.control.caller import Caller
from timestone_cli.control.protocol import REPLY_BYTES, REQUEST_BYTES, encode_request

STATUS = encode_request("status", {})


@contextmanager
def connected(store: Path) -> Iterator[socket.socket]:
    with closing(socket.socket(socket.AF_UNIX)) as one:
        one.settimeout(TIMEOUT_S)
        one.connect(str(store / "CONTROL"))
        yield one


def reply(one: socket.socket) -> dict[str, Any]:
    """Return the next reply; an empty object at the end of the connection."""
    received = b""
    while not received.endswith(b"\n"):
        try:
            data = one.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        if not data:
            return {}
        received += data
    found: dict[str, Any] = json.loads(received)
    return found


def test_socket_is_for_its_owner_whatever_the_umask(tmp_path: Path) -> None:
    for umask in (0o000, 0o777):
        before = os.umask(umask)
        try:
            folder = tmp_path / f"{umask:o}"
            os.umask(before)
            folder.mkdir()
            fd = os.open(folder, os.O_RDONLY)
            os.umask(umask)
            service._listening(fd).close()
            os.close(fd)
        finally:
            os.umask(before)
        assert stat.S_IMODE((folder / "CONTROL").stat().st_mode) == 0o600


def test_requests_are_answered_one_after_the_other(tmp_path: Path) -> None:
    with controlled_server(tmp_path), connected(tmp_path) as one:
        one.sendall(STATUS * 3)
        received = b""
        while received.count(b"\n") < 3:
            received += one.recv(1 << 16)
        assert {json.loads(line)["ok"] for line in received.splitlines()} == {True}
    assert not (tmp_path / "CONTROL").exists()


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"\n", "invalid_line"),
        (b"GET / HTTP/1.1\r\n", "invalid_line"),
        (b"\x00\xff\n", "invalid_line"),
        (b'{"version":9,"request":"status"}\n', "unsupported_version"),
        (encode_request("stop", {}), "invalid_request"),
        (encode_request("configure", {"logs": [["nowhere", 0]], "settings": {"retention_ms": 1}}), "failed"),
    ],
)
def test_line_that_is_wrong_gets_an_error_and_the_next_one_is_answered(
    tmp_path: Path, sent: bytes, code: str
) -> None:
    with controlled_server(tmp_path), connected(tmp_path) as one:
        one.sendall(sent)
        assert reply(one)["error"]["code"] == code
        one.sendall(STATUS)
        assert reply(one)["ok"] is True


def test_request_that_is_too_long_gets_an_error_and_the_end(tmp_path: Path) -> None:
    with controlled_server(tmp_path), connected(tmp_path) as one:
        try:
            one.sendall(b"x" * (4 * REQUEST_BYTES) + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert reply(one).get("error", {}).get("code", "request_too_large") == "request_too_large"
        assert reply(one) == {}


def test_seventeenth_connection_is_refused_until_one_ends(tmp_path: Path) -> None:
    with controlled_server(tmp_path), ExitStack() as stack:
        held = [stack.enter_context(connected(tmp_path)) for _ in range(service.CONNECTION_COUNT)]
        for one in held:
            one.sendall(STATUS)
            assert reply(one)["ok"]
        with connected(tmp_path) as further:
            assert reply(further)["error"]["code"] == "too_many_connections"
            assert reply(further) == {}
        held[0].close()

        def is_served() -> bool:
            with connected(tmp_path) as again:
                again.sendall(STATUS)
                return reply(again).get("ok") is True

        wait_for(is_served)


def test_client_that_hangs_up_before_its_reply_leaves_no_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run(store: timestone.Store) -> None:
        begun, gone = asyncio.Event(), asyncio.Event()

        async def audit(facts: Mapping[str, Any]) -> bool:
            begun.set()
            await gone.wait()
            return True

        control = service.ControlService(store, [], audit)
        await control.start()
        with connected(tmp_path) as one:
            one.sendall(STATUS + encode_request("forget", {"log": "a", "readers": ["b"]}))
            await begun.wait()  # with a reply that is not read, so the end of the connection is a reset
        await asyncio.sleep(0.1)
        gone.set()
        async with asyncio.timeout(TIMEOUT_S):
            while control._open:
                await asyncio.sleep(0.01)
        await control.stop()
        gc.collect()  # asyncio reports an exception that nothing has taken

    with (
        timestone.open(tmp_path, min_free_bytes=0) as store,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(run(store))
    assert caplog.text == ""


def test_client_that_sends_nothing_or_half_a_line_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "REQUEST_S", 0.2)
    with controlled_server(tmp_path), connected(tmp_path) as silent, connected(tmp_path) as half:
        half.sendall(STATUS[:10])
        assert reply(silent) == reply(half) == {}


@pytest.mark.slow
def test_client_that_reads_nothing_is_disconnected_and_others_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "REQUEST_S", 0.5)
    with (
        controlled_server(tmp_path) as server,
        connected(tmp_path) as greedy,
        RawClient(server.address) as client,
    ):
        client.connect("c")
        greedy.settimeout(0.1)
        sent, until = 0, time.monotonic() + TIMEOUT_S
        while time.monotonic() < until:
            try:
                sent += greedy.send(STATUS * 100)
            except TimeoutError:
                client.publish("t", b"x")  # the loop has its turn
            except (BrokenPipeError, ConnectionResetError):
                break
        else:
            pytest.fail("it was never disconnected")
        assert sent < 8 * REPLY_BYTES
        with Caller(tmp_path) as other:
            assert other.call("status")["parts"]["mqtt"]["connections"] == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("is_open", [False, True])
def test_another_user_is_refused(tmp_path: Path, is_open: bool) -> None:
    with controlled_server(tmp_path):
        tmp_path.chmod(0o711)
        if is_open:  # the mode was changed by hand: the credentials of the peer count
            (tmp_path / "CONTROL").chmod(0o666)
        answers, child_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.chdir(tmp_path)
            os.setgroups([])
            os.setuid(65534)
            try:
                one = socket.socket(socket.AF_UNIX)
                one.connect("CONTROL")
                os.write(child_end, one.recv(4096))
            except BaseException as error:
                os.write(child_end, type(error).__name__.encode())
            os._exit(0)
        os.waitpid(child, 0)
        found = os.read(answers, 4096).decode()
        os.close(answers)
        os.close(child_end)
    assert "not_permitted" in found if is_open else found == "PermissionError", found


def test_folder_with_a_long_path_has_a_control_socket(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["d" * 100] * 3)
    folder.mkdir(parents=True)
    with controlled_server(folder), Caller(folder) as server:
        assert server.call("status")["pid"] == os.getpid()


@pytest.mark.slow
def test_socket_of_a_killed_server_is_replaced_by_the_next(tmp_path: Path) -> None:
    serve = ["serve", "--data", "data", "--mqtt", "127.0.0.1:0"]
    with Running(*serve, cwd=tmp_path) as first:
        first.lines_until("ready")
        first.stop(signal.SIGKILL)
    assert (tmp_path / "data" / "CONTROL").is_socket()
    with Running(*serve, cwd=tmp_path) as second:
        second.lines_until("ready")
        with Caller(tmp_path / "data") as server:
            assert server.call("status")["pid"] == second.process.pid
        assert second.stop()[0] == 0
    assert not (tmp_path / "data" / "CONTROL").exists()


@pytest.mark.slow
def test_server_runs_without_a_control_socket_when_a_file_is_in_the_way(tmp_path: Path) -> None:
    timestone.open(tmp_path / "data").close()
    (tmp_path / "data" / "CONTROL").write_text("mine")
    with Running("serve", "--data", "data", "--mqtt", "127.0.0.1:0", cwd=tmp_path) as server:
        server.lines_until("ready")
        code, _, complaints = server.stop()
    assert code == 0 and "no control socket: a file named CONTROL is in the way" in complaints
    assert (tmp_path / "data" / "CONTROL").read_text() == "mine"
