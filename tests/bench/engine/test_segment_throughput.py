import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.commands import run as run_command
from tests.support.waiting import TIMEOUT_S, wait_for
from timestone_bench.engine import segment_throughput
from timestone_bench.errors import BenchmarkError

TINY = ["--record-bytes", "100", "--count", "2048", "--repeat", "2"]


@pytest.fixture
def directory(quick_directory: Path, tmp_path: Path) -> Path:
    """In memory, if there is room for what a store leaves free."""
    return quick_directory if shutil.disk_usage(quick_directory).free > 1 << 30 else tmp_path


def run(directory: Path, *words: str) -> int:
    return run_command(segment_throughput.command, *TINY, "--dir", str(directory), *words)


@pytest.mark.slow
def test_json_has_all_rows_and_nothing_is_left_behind(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(directory, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    rows = {row["name"]: row for row in result["rows"]}
    assert list(rows) == [
        "pwrite 1",
        "append 1",
        "pwrite 64",
        "append 64",
        "pwrite 1024",
        "append 1024",
        "segment 1024",
        "log 1024",
        "pwrite 1024 + fdatasync",
        "append 1024 synced",
        "pread 1 MiB",
        "bulk read",
        "bulk read again",
        "bulk read to Arrow",
        "tail read",
        "pread record",
        "single read",
    ]
    assert {row["repeats"] for row in result["rows"]} == {2}
    assert result["parameters"] == {"record_bytes": 100, "count": 2048, "ack": "written", "repeat": 2}
    assert any("measure the page cache" in warning for warning in result["warnings"])
    assert any("too short to mean much" in warning for warning in result["warnings"])
    assert list(directory.iterdir()) == []


@pytest.mark.slow
def test_the_plot_is_written_where_it_was_asked_for(directory: Path, tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    assert run(directory, "--repeat", "1", "--plot", str(picture)) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--dir", "no-such-directory"], "no-such-directory is not a directory"),
        (["--plot", "no-such-directory/x.png"], "no-such-directory is not a directory"),
        (["--count", "1_000_000_000_000"], "MB are needed"),
    ],
)
def test_what_cannot_work_is_said_before_anything_is_measured(
    tmp_path: Path, words: list[str], complaint: str
) -> None:
    with pytest.raises(BenchmarkError, match=complaint):
        run(tmp_path, *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_cleans_up_after_itself(tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "timestone_cli", "bench", "segment-throughput", "--dir", str(tmp_path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    wait_for(lambda: list(tmp_path.glob("timestone-bench-*/*/*")))
    os.kill(process.pid, number)
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert errors == b""
    assert list(tmp_path.iterdir()) == []
