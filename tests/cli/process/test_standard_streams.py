"""Commands whose standard streams were closed by their parent."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import timestone
from tests.cli.processes import COMMAND

NUMBERS = """
import os, sys
from timestone_cli.process.standard_streams import open_standard_streams
os.closerange(0, 3)
sys.stdin = sys.stdout = sys.stderr = None
open_standard_streams()
open("numbers", "w").write(repr([one.fileno() for one in (sys.stdin, sys.stdout, sys.stderr)]))
"""


def onto_full_disk(
    stream: str, words: list[str], cwd: Path, unbuffered: str = ""
) -> "subprocess.CompletedProcess[str]":
    with open("/dev/full", "w") as full:
        streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: full}
        environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}  # empty: as if it were not set
        return subprocess.run([*COMMAND, *words], cwd=cwd, env=environment, text=True, timeout=60, **streams)


@pytest.mark.slow
def test_commands_do_their_work_without_standard_streams(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("one\ntwo\n")
    append, read = ("append", "data", "log"), ("read", "data", "log")
    for words in ((*append, "--file", "lines"), append, read, ("inspect", "data")):
        script = 'exec "$@" <&- >&- 2>&-'
        assert subprocess.run(["sh", "-c", script, "sh", *COMMAND, *words], cwd=tmp_path).returncode == 0
    with timestone.view(tmp_path / "data") as store:
        assert store.log("log").read(0).payloads() == [b"one", b"two"]


def test_no_file_gets_the_number_of_a_standard_stream(tmp_path: Path) -> None:
    subprocess.run([COMMAND[0], "-c", NUMBERS], cwd=tmp_path, check=True)
    assert (tmp_path / "numbers").read_text() == "[0, 1, 2]"


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("words", "program", "code"),
    [
        (["--version"], "timestone", 1),
        (["--help"], "timestone", 1),
        ([], "timestone", 1),
        (["read", "--help"], "timestone read", 1),
        (["read", "data", "log"], "timestone read", 1),
        (["readers", "data", "--json"], "timestone readers", 1),
        (["inspect", "data"], "timestone inspect", 74),
    ],
)
def test_full_disk_below_standard_output_is_one_line(
    tmp_path: Path, words: list[str], program: str, code: int, unbuffered: str
) -> None:
    with timestone.open(tmp_path / "data") as store:
        store.log("log").append(b"x")
    done = onto_full_disk("stdout", words, tmp_path, unbuffered)
    assert (done.returncode, done.stderr) == (code, f"{program}: No space left on device\n")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["raed"], 64),
        (["read", "--bogus"], 64),
        (["read", "nothing", "log"], 1),
        (["read", "nothing", "log", "--debug"], 1),
    ],
)
def test_exit_code_stays_when_standard_error_is_on_a_full_disk(
    tmp_path: Path, words: list[str], code: int
) -> None:
    assert onto_full_disk("stderr", words, tmp_path).returncode == code


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [["--version"], ["--help"], ["read", "--help"]])
def test_reader_that_has_left_ends_it_quietly(words: list[str], unbuffered: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as left:
        done = subprocess.run(
            [*COMMAND, *words],
            stdout=left,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (141, b"")
