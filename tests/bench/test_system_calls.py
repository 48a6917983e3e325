import contextlib
import json
import os
import sys
from pathlib import Path

import pytest

from tests.bench.commands import run as run_command
from timestone_bench import system_calls
from timestone_bench.errors import BenchmarkError


def opened() -> set[tuple[str, str]]:
    """The descriptors of this process, each with what it is of."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that listed them
            found.add((fd, os.readlink(f"/proc/self/fd/{fd}")))
    return found


def run(*words: str) -> int:
    return run_command(system_calls.command, *words)


def test_each_way_stands_beside_the_one_that_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = opened()
    assert run("--repeat", "1", "--quick", "--json", "--dir", str(tmp_path)) == 0
    answers = json.loads(capsys.readouterr().out)["result"]["answers"]
    ways: dict[str, list[str]] = {}
    for one in answers:
        ways.setdefault(one["question"], []).append(one["way"])
        assert one["wall_us"] > 0
    assert all(len(each) == len(set(each)) for each in ways.values())
    assert {way for each in ways.values() for way in each} >= {
        "sendmsg",
        "sendfile",
        "splice twice",
        "two threads",
    }
    assert [one["wall_ratio"] for one in answers if one["way"] == ways[one["question"]][0]] == [1.0] * len(
        ways
    )
    assert list(tmp_path.iterdir()) == []
    assert opened() <= before, "what others have left open may go at any time"


def test_the_table_says_when_there_is_no_io_uring(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "liburing", None)
    assert run("--repeat", "1", "--quick", "--dir", str(tmp_path)) == 0
    told = capsys.readouterr().out
    assert "join, send" in told
    assert "io_uring was left out" in told


def test_it_needs_a_directory(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="not a directory"):
        run("--dir", str(tmp_path / "none"))
