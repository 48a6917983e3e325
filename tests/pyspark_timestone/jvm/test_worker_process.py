"""What a process of Spark's says when Java hangs up on it: Spark's real daemon, and this test in the place of Java."""

import os
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.waiting import wait_for

SPARKS, OURS = "pyspark.daemon", "pyspark_timestone.daemon"

WORK = """
import sys
def main(infile, outfile):
    word = infile.read(4)
    if word == b"read":
        import pyspark_timestone.source
    elif word == b"talk":
        print("said by a user's function", file=sys.stderr)
    elif word == b"fail":
        outfile.write(b"done")
        raise SystemError("not Java's doing")
    elif word != b"rest":
        # As Spark's workers do, which report that end of file.
        outfile.write(b"the end")
        sys.exit(-1)
    outfile.write(b"done")
"""
"""Stands for Spark's worker; the daemon wants its name to begin like this."""


def said(daemon: str, folder: Path, *words: bytes) -> str:
    """What a worker prints that is given each of `words` for its work, and on which Java then hangs up."""
    (folder / "pyspark_work.py").write_text(WORK)
    # Not in `folder`: the path of a socket has some hundred bytes at most.
    sockets = tempfile.TemporaryDirectory(prefix="worker-")
    environment = {
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": sockets.name,
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
        "SPARK_REUSE_WORKER": "1",
        "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
    }
    with (
        sockets,
        subprocess.Popen(
            [sys.executable, "-m", daemon, "pyspark_work"],
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process,
    ):
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        (length,) = struct.unpack(">i", process.stdout.read(4))
        with socket.socket(socket.AF_UNIX) as java:
            java.connect(process.stdout.read(length))
            (worker,) = struct.unpack(">i", java.recv(4))
            for word in words:
                java.sendall(word)
                assert java.recv(4) == b"done"
        wait_for(lambda: not Path(f"/proc/{worker}").exists())
        process.stdin.close()
        return process.stderr.read().decode()


@pytest.mark.parametrize("words", [[], [b"rest"]], ids=["in the midst", "at rest"])
def test_a_worker_of_our_daemon_ends_without_a_word(tmp_path: Path, words: list[bytes]) -> None:
    assert said(OURS, tmp_path, *words) == ""


def test_a_worker_of_sparks_daemon_ends_without_a_word_once_the_source_has_been_in_it(tmp_path: Path) -> None:
    assert said(SPARKS, tmp_path, b"read") == ""


def test_else_there_would_be_a_traceback(tmp_path: Path) -> None:
    assert "BrokenPipeError" in said(SPARKS, tmp_path, b"rest")


def test_what_a_function_prints_and_what_fails_otherwise_is_seen(tmp_path: Path) -> None:
    printed = said(OURS, tmp_path, b"talk", b"fail")
    assert printed.startswith("said by a user's function\nTraceback")
    assert printed.endswith("SystemError: not Java's doing\n")


RAISE = """
import os
from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.jvm.worker_process import errors_in_one_line
for error in (KeyError("a bug"), InvalidOption("of the user")):
    try:
        with errors_in_one_line():
            raise error
    except Exception as caught:
        print(caught, os.environ.get("SPARK_HIDE_TRACEBACK"))
"""


@pytest.mark.parametrize("program", ["pyspark_work", "any_other"])
def test_only_errors_of_the_source_lose_their_frames_and_only_in_sparks_processes(
    tmp_path: Path, program: str
) -> None:
    (tmp_path / f"{program}.py").write_text(RAISE)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-m", program], env=environment, capture_output=True, text=True, check=True
    )
    hidden = "1" if program == "pyspark_work" else None
    assert done.stdout == f"'a bug' None\nof the user {hidden}\n"
