"""Commands whose standard streams were closed by whoever started them."""

import subprocess
from pathlib import Path

import timestone
from tests.cli.processes import COMMAND

NUMBERS = """
import os, sys
from timestone_cli.standard_streams import open_standard_streams
os.closerange(0, 3)
sys.stdin = sys.stdout = sys.stderr = None
open_standard_streams()
open("numbers", "w").write(repr([one.fileno() for one in (sys.stdin, sys.stdout, sys.stderr)]))
"""


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
