"""`timestone parquet` as a process."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import Running
from tests.cli.processes import timestone as command
from tests.support.stores import LOG, drop_first_segment, fill

pytestmark = pytest.mark.slow


def test_files_are_written_once_and_old_ones_go(tmp_path: Path) -> None:
    fill(tmp_path / "data", 2500)
    done = command("parquet", "data", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    first, path, *_, last = done.stdout.splitlines()
    assert first.startswith("telemetry-0 [0, 1000): 1,000 records, ")
    assert (tmp_path / path.strip()).is_file()
    assert last == "3 files written, 0 were there, 0 removed"
    drop_first_segment(tmp_path / "data")
    assert command("parquet", "data", cwd=tmp_path).stdout == "0 files written, 2 were there, 0 removed\n"
    done = command("parquet", "data", "--keep", "0", cwd=tmp_path)
    assert done.stdout == "0 files written, 2 were there, 1 removed\n"
    assert command("inspect", "data", "--deep", cwd=tmp_path).returncode == 0


def test_it_follows_a_store_until_it_is_stopped(tmp_path: Path) -> None:
    fill(tmp_path / "data", 1000)
    with Running("parquet", "data", "--follow", cwd=tmp_path) as running:
        assert running.line().startswith("telemetry-0 [0, 1000)")
        busy = command("parquet", "data", cwd=tmp_path)
        assert (busy.returncode, busy.stderr) == (
            1,
            "timestone parquet: another process writes the side files of data\n",
        )
        code, _, err = running.stop()
    assert (code, err) == (128 + signal.SIGTERM, "")


def test_what_cannot_be_done_is_one_line(tmp_path: Path) -> None:
    fill(tmp_path / "data", 10)
    for words, code, text in (
        (["nothing"], 1, "does not exist"),
        (["data", "--min-free", "999999999"], 1, "No space left on device"),
        (["data", "--keep", "soon"], 64, "--keep"),
        (["data", "--keep", "nan"], 64, "--keep"),
        (["data", "--min-free", "-1"], 64, "--min-free"),
    ):
        done = command("parquet", *words, cwd=tmp_path)
        assert done.returncode == code
        assert text in done.stderr and len(done.stderr.splitlines()) == 1


def test_it_needs_arrow_and_no_spark(tmp_path: Path) -> None:
    fill(tmp_path / "data", 10)
    program = "import sys; sys.modules[{!r}] = None; from timestone_cli.main import main; sys.exit(main())"

    def without(module: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-c", program.format(module), "parquet", "data"]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    refused = without("pyarrow")
    assert refused.returncode == 1
    assert "side files need pyarrow, which is not installed: pip install" in refused.stderr
    assert without("pyspark").stdout.splitlines()[-1] == "1 file written, 0 were there, 0 removed"
    assert (tmp_path / "data" / "parquet" / f"{LOG}-0").is_dir()


def test_json_says_which_files_were_written_and_nothing_else(tmp_path: Path) -> None:
    fill(tmp_path / "data", 1500)
    done = command("parquet", "data", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    paths = [file.pop("path") for file in found["files"]]
    assert found == {
        "path": "data",
        "files": [
            {
                "log": LOG,
                "partition": 0,
                "base_offset": base,
                "next_offset": end,
                "records": end - base,
                "file_bytes": (tmp_path / path).stat().st_size,
            }
            for (base, end), path in zip([(0, 1000), (1000, 1500)], paths, strict=True)
        ],
        "written": 2,
        "there": 0,
        "removed": 0,
        "left_out": 0,
    }
    found = json.loads(command("parquet", "data", "--json", cwd=tmp_path).stdout)
    assert (found["files"], found["written"], found["there"]) == ([], 0, 2)


def test_json_of_one_that_follows_is_a_line_a_file(tmp_path: Path) -> None:
    fill(tmp_path / "data", 1500)
    with Running("parquet", "data", "--follow", "--json", cwd=tmp_path) as running:
        assert [json.loads(running.line())["base_offset"] for _ in range(2)] == [0, 1000]
        assert running.stop() == (128 + signal.SIGTERM, "", "")
