import json
import re
import socket
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.processes import Running
from tests.cli.processes import timestone as command
from tests.support.stores import fill
from timestone_cli.control.protocol import encode_result
from timestone_cli.live.console import ServerLink
from timestone_console.problems import NoServer

LINK = re.compile(r"console (http://127.0.0.1:[0-9]+)/login#(\S+)")


@pytest.mark.slow
def test_console_prints_a_link_whose_key_opens_it(tmp_path: Path) -> None:
    fill(tmp_path / "data", 10)
    with Running("console", "data", "--listen", "127.0.0.1:0", cwd=tmp_path) as running:
        found = LINK.fullmatch(running.line())
        assert found is not None
        origin, key = found.groups()
        request = urllib.request.Request(
            f"{origin}/api/v1/login", json.dumps({"key": key}).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            assert json.load(answer)["role"] == "operator"
        code, _, errors = running.stop()
        assert (code, errors) == (0, "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("console", "data", "--listen", "nonsense"), "invalid --listen"),
        (("console", "data", "--listen", "192.0.2.1:1"), "can be read from other machines without a login"),
        (("console", "nowhere", "--listen", "127.0.0.1:0"), "is not a Timestone store"),
    ],
)
def test_console_that_cannot_start_says_why_in_a_line(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    fill(tmp_path / "data", 1)
    done = command(*words, cwd=tmp_path)
    assert done.returncode != 0 and message in done.stderr and done.stderr.count("\n") == 1


@pytest.fixture
def dying_server(tmp_path: Path) -> Iterator[tuple[Path, list[str]]]:
    """Return a store whose server ends each connection at the first action, without a reply, and the requests that it
    got."""
    fill(tmp_path / "data", 1)
    got: list[str] = []
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "data" / "CONTROL"))
    listening.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as lines:
                for line in lines:
                    got.append(json.loads(line)["request"])
                    if got[-1] != "status":
                        break
                    connection.sendall(encode_result({"pid": 1}))

    threads = [threading.Thread(target=serve) for _ in range(2)]
    for thread in threads:
        thread.start()
    yield tmp_path / "data", got
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    for thread in threads:
        thread.join()


def test_action_is_sent_once_when_its_connection_ends(dying_server: tuple[Path, list[str]]) -> None:
    store, got = dying_server
    link = ServerLink(store)
    assert link.call("status") == {"pid": 1}
    with pytest.raises(NoServer):
        link.call("publish", by={"via": "console"}, topic="a")
    assert got == ["status", "publish"]
    with pytest.raises(NoServer):
        link.call("retained", topic="a")
    assert got[2:] == ["retained", "retained"]  # a question may be asked again
    assert link.call("status") == {"pid": 1}
    link.close()
