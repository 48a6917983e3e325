"""`timestone wait` as a process, beside servers that are ready, become ready, or never will be."""

import json
import os
import socket
import threading
from pathlib import Path

import pytest

from tests.cli.processes import Running
from tests.cli.processes import timestone as command
from tests.support.ports import reserved_port


@pytest.mark.slow
def test_address_is_waited_for_until_a_server_listens(tmp_path: Path) -> None:
    with reserved_port() as port:
        address = f"127.0.0.1:{port}"
        with Running("wait", address, cwd=tmp_path) as waiting:
            with Running("serve", "--mqtt", address, cwd=tmp_path) as server:
                server.lines_until("ready")
                assert waiting.process.wait(60) == 0
                assert server.stop()[0] == 0
            assert waiting.process.communicate() == (b"", b"")


@pytest.mark.slow
def test_ready_file_is_waited_for_while_its_process_lives(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    ready.write_text(json.dumps({"pid": _dead_pid()}))
    done = command("wait", "ready.json", "--timeout", "200ms", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "timestone wait: ready.json is not ready after 0.2 s\n")
    timer = threading.Timer(0.3, ready.write_text, [json.dumps({"pid": os.getpid()})])
    timer.start()
    assert command("wait", "ready.json", cwd=tmp_path).returncode == 0
    timer.join()


def _dead_pid() -> int:
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


def test_server_that_does_not_come_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = f"127.0.0.1:{gone.getsockname()[1]}"
    done = command("wait", address, "--timeout", "0.1", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, f"timestone wait: {address} is not ready after 0.1 s\n")


def test_a_folder_is_no_server(tmp_path: Path) -> None:
    done = command("wait", str(tmp_path))
    expected = f"invalid SERVER '{tmp_path}': expected HOST:PORT or the file of --ready-file, got a folder"
    assert (done.returncode, done.stderr) == (
        64,
        f"timestone wait: {expected}\n",
    )


@pytest.mark.parametrize("words", [("127.0.0.1:port",), ("a..b:1",), ("127.0.0.1:1883", "--timeout", "soon")])
def test_wrong_usage_is_reported_at_once(words: tuple[str, ...]) -> None:
    assert command("wait", *words).returncode == 64
