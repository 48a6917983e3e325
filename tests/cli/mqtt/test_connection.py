"""Logins and TLS of `timestone pub` and `sub`, against a server that asks for both."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.processes import Running
from tests.cli.processes import timestone as command
from tests.support.certificates import Authority
from timestone_access.passwords.password_file import set_password

CONFIGURATION = """\
data = "data"
[mqtt]
listen = "none"
password_file = "passwords"
[[mqtt.listeners]]
address = "0.0.0.0:0"
certificate = "server.pem"
key = "server.key"
client_ca = "authority.pem"
user_from = "cn"
"""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder with the files of server and client, and the port; a user alice and certificates of clients come in."""
    path = tmp_path_factory.mktemp("secured")
    authority = Authority(path)
    authority.issue_server()
    client = authority.issue("device-7")
    (path / "client.pem").write_bytes(client.path.read_bytes() + client.key_path.read_bytes())
    (path / "password").write_text("correct horse\nanother line\n")
    set_password(path / "passwords", "alice", b"correct horse", scram=False)
    (path / "serve.toml").write_text(CONFIGURATION)
    with Running("serve", "--config", "serve.toml", "--ready-file", "ready.json", cwd=path) as running:
        (listener,) = running.wait_for_json(path / "ready.json")["fronts"]["mqtt"]["listeners"]
        yield path, listener["address"].rpartition(":")[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "environment", "stdin", "complaint"),
    [
        (["-u", "alice", "-P", "password"], {}, b"", ""),
        (["-u", "alice", "-P", "-"], {}, b"correct horse\n", ""),
        (["-u", "alice"], {"MQTT_PASSWORD": "correct horse"}, b"", ""),
        (["--cert", "client.pem"], {}, b"", ""),
        (["-u", "alice"], {}, b"", "connection refused: bad user name or password"),
        (["-u", "alice"], {"MQTT_PASSWORD": "wrong"}, b"", "connection refused: bad user name or password"),
        (
            ["-u", "alice", "-P", "password", "--tls"],
            {"SSL_CERT_FILE": "nothing"},
            b"",
            "certificate verify failed",
        ),
    ],
)
def test_password_comes_from_a_file_and_a_certificate_is_a_login(
    secured: tuple[Path, str], words: list[str], environment: dict[str, str], stdin: bytes, complaint: str
) -> None:
    path, port = secured
    trust = [] if "--tls" in words else ["--cafile", "authority.pem"]
    sent = ("pub", "-p", port, "-t", "t", "-m", "x", "-q", "1", *trust, *words)
    done = command(*sent, cwd=path, environment=environment, stdin=stdin)
    assert (done.returncode, done.stdout) == (1 if complaint else 0, "")
    assert complaint in done.stderr
    assert "horse" not in done.stderr


@pytest.mark.parametrize("words", [("pub", "-t", "t", "-m", "x"), ("sub", "-t", "t")])
def test_host_that_cannot_be_looked_up_is_wrong_usage(words: tuple[str, ...]) -> None:
    done = command(*words, "-h", "a..b")
    assert (done.returncode, done.stdout) == (64, "")
    said = "invalid host: expected the name or address of a host, got 'a..b'"
    assert done.stderr == f"timestone {words[0]}: {said}\n"


def test_other_host_name_is_refused_unless_it_is_meant(secured: tuple[Path, str]) -> None:
    path, port = secured
    words = ("pub", "-h", "127.0.0.2", "-p", port, "-t", "t", "-m", "x", "--cert", "client.pem")
    done = command(*words, "--cafile", "authority.pem", cwd=path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"timestone pub: 127.0.0.2:{port}: ")
    assert "127.0.0.2" in done.stderr.partition("verify failed")[2]
    assert command(*words, "--cafile", "authority.pem", "--insecure", cwd=path).returncode == 0
