"""The side of a command: what it says when there is no server, or one that answers oddly."""

import socket
import threading
from contextlib import closing
from pathlib import Path

import pytest

import timestone
from tests.support.control_server import controlled_server
from tests.support.mqtt_clients import RawClient
from timestone.errors import NotAStore
from timestone_cli.control.caller import Caller, NoServer, Refused
from timestone_cli.control.protocol import REPLY_BYTES
from timestone_cli.errors import CommandError


def test_clients_of_all_pages_are_listed_once(tmp_path: Path) -> None:
    with controlled_server(tmp_path) as server:
        clients = [RawClient(server.address) for _ in range(120)]
        try:
            for number, client in enumerate(clients):
                client.connect(f"c{number}")
            with Caller(tmp_path) as caller:
                found = [row["client"] for row in caller.clients()]
        finally:
            for client in clients:
                client.close()
    assert found == [f"c{number}" for number in range(120)]


def test_refused_request_raises_with_its_code(tmp_path: Path) -> None:
    with controlled_server(tmp_path), Caller(tmp_path) as caller:
        with pytest.raises(Refused, match="unknown request 'stop'") as raised:
            caller.call("stop")
        assert raised.value.code == "invalid_request"
        assert caller.call("status")["fronts_with_clients"] == ["mqtt"]
        with pytest.raises(CommandError, match="the request has"):
            caller.call("disconnect", front="mqtt", client="x" * 100_000)


def test_store_without_a_server_is_named(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data"), pytest.raises(NoServer, match="it is not `timestone serve`"):
        Caller(tmp_path / "data")
    with pytest.raises(NoServer, match=r"no server runs on .*data"):
        Caller(tmp_path / "data")
    for place, why in (("nowhere", "does not exist"), (".", "has no catalog.db")):
        with pytest.raises(NotAStore, match=why):
            Caller(tmp_path / place)
    (tmp_path / "file").touch()
    with pytest.raises(NotAStore, match="not a directory"):
        Caller(tmp_path / "file")


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"hello\n", "sent an invalid reply"),
        (b'{"version":1}\n', "sent an invalid reply"),
        (b'{"version":1,"ok":true,"result":7}\n', "sent an invalid reply"),
        (b'{"version":2,"ok":true,"result":{}}\n', "is of another version"),
        (b"", "closed the connection"),
        (b'{"version":1', "closed the connection"),
        (b"x" * (REPLY_BYTES + (1 << 17)), "sent more than"),
    ],
)
def test_reply_of_something_else_is_one_line(tmp_path: Path, sent: bytes, why: str) -> None:
    def answer() -> None:
        one, _ = listening.accept()
        with one:
            one.recv(1 << 16)
            try:
                one.sendall(sent)
            except BrokenPipeError:
                pass  # the caller has had enough

    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind(str(tmp_path / "CONTROL"))
        listening.listen()
        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(CommandError, match=why) as raised, Caller(tmp_path) as caller:
            caller.call("status")
        thread.join()
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 200


def test_server_that_does_not_answer_ends_the_wait(tmp_path: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind(str(tmp_path / "CONTROL"))
        listening.listen()
        with pytest.raises(NoServer, match="did not answer"), Caller(tmp_path, timeout_s=0.1) as caller:
            caller.call("status")
