"""`timestone pub` as a process, against a server that runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import timestone
from tests.cli.processes import Running
from tests.cli.processes import timestone as command
from tests.support.mqtt_process import MqttProcess


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    data = tmp_path_factory.mktemp("pub") / "data"
    with MqttProcess(data) as running:
        yield data, str(running.address[1])


def stored(data: Path, topic: str) -> list[tuple[bytes, int, int]]:
    with timestone.view(data) as view:
        return [(one.payload, one.qos, one.flags & 1) for one in view.log("mqtt").reader(topics=topic)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "stdin", "payloads"),
    [
        (["-m", "grün"], b"", ["grün".encode()]),
        (["-f", "file"], b"", [b"of the file\n"]),
        (["-s"], b"two\nlines\n", [b"two\nlines\n"]),
        (["-l"], b"two\n\xff\n\nlast", [b"two", b"\xff", b"", b"last"]),
        (["-n"], b"", [b""]),
    ],
)
@pytest.mark.parametrize("version", ["311", "5"])
@pytest.mark.parametrize("qos", ["1", "2"])
def test_messages_come_from_an_option_a_file_or_standard_input(
    server: tuple[Path, str],
    tmp_path: Path,
    words: list[str],
    stdin: bytes,
    payloads: list[bytes],
    version: str,
    qos: str,
) -> None:
    data, port = server
    (tmp_path / "file").write_bytes(b"of the file\n")
    topic = f"pub{words[0]}/{version}/{qos}"
    done = command(
        "pub", "-p", port, "-t", topic, "-q", qos, "-V", version, "-r", *words, stdin=stdin, cwd=tmp_path
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert stored(data, topic) == [(payload, int(qos), 1) for payload in payloads]


@pytest.mark.slow
def test_lines_are_published_as_they_arrive(server: tuple[Path, str], tmp_path: Path) -> None:
    data, port = server
    with Running("pub", "-p", port, "-t", "slow", "-l", "-q", "1", "-k", "1", cwd=tmp_path) as running:
        assert running.process.stdin is not None
        running.process.stdin.write(b"first\n")
        running.process.stdin.flush()
        while not stored(data, "slow"):
            assert running.process.poll() is None
        running.process.stdin.close()
        assert running.process.wait(60) == 0


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        ([], 64, "expected exactly one of -m, -f, -s, -l and -n"),
        (["-m", "x", "-n"], 64, "expected exactly one of -m, -f, -s, -l and -n"),
        (["-m", "x", "-t", "a/+"], 64, "invalid value for '-t' / '--topic': topic 'a/+' contains a wildcard"),
        (["-m", "x", "-P", "a password"], 64, "the password file cannot be read: No such file or directory"),
        (["-m", "x", "-P", "file"], 64, "a password needs --user"),
        (["-m", "x", "--key", "file"], 64, "--key needs --cert"),
        (["-m", "x", "--cafile", "file"], 64, "the files for TLS cannot be used: "),
        (["-f", "nowhere"], 1, "nowhere: No such file or directory"),
        (["-m", "x", "-p", "1"], 1, "127.0.0.1:1: Connection refused"),
        (
            ["-m", "x", "-p", "65536"],
            64,
            "invalid value for '-p' / '--port': expected a whole number from 1 to 65535",
        ),
        (["-m", "x", "-i", "x" * 70_000], 1, "127.0.0.1:"),
        (["-m", "x", "-h", "host.invalid"], 1, "host.invalid:"),
    ],
)
def test_what_cannot_be_published_is_one_line(
    server: tuple[Path, str], tmp_path: Path, words: list[str], code: int, complaint: str
) -> None:
    (tmp_path / "file").write_text("secret\n")
    done = command("pub", "-p", server[1], "-t", "t", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(f"timestone pub: {complaint}")
    assert done.stderr.count("\n") == 1
    assert "a password file" not in done.stderr
    assert "secret" not in done.stderr


def test_server_that_refuses_is_named_with_its_reason(server: tuple[Path, str]) -> None:
    done = command("pub", "-p", server[1], "-t", "t", "-s", "-q", "1", stdin=b"x" * (2 << 20))
    assert done.returncode == 1
    reason = "the server ended the connection: packet too large (0x95)"
    assert done.stderr == f"timestone pub: 127.0.0.1:{server[1]}: {reason}\n"
