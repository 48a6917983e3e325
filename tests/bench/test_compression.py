import json
from pathlib import Path

import click
import pytest

from tests.bench.commands import run as run_command
from timestone_bench import compression


def run(folder: Path, *words: str) -> int:
    return run_command(compression.command, "--dir", str(folder), *words)


def test_each_level_is_compared_with_the_raw_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--count", "9000", "--repeat", "1", "--levels", "1,3", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    rows = found["rows"]
    assert [row["name"] for row in rows] == ["raw", "zstd 1", "zstd 3"]
    assert rows[0]["saved_ratio"] == rows[0]["bulk_ratio"] == rows[0]["single_ratio"] == 1
    assert rows[0]["compress_mb_per_s"] is None
    for row in rows[1:]:
        assert row["saved_ratio"] > 2
        assert row["compress_mb_per_s"] > 0
        assert row["single_ratio"] > 1, "a frame is more than a record"
    assert list(tmp_path.iterdir()) == []


def test_table_has_a_line_for_each_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--count", "3000", "--repeat", "1", "--levels", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[-2:]] == ["raw", "zstd 2"]


@pytest.mark.parametrize(
    "words", [["--repeat", "0"], ["--levels", "20"], ["--levels", "3,x"], ["--count", "0"]]
)
def test_what_is_out_of_range_is_refused(tmp_path: Path, words: list[str]) -> None:
    with pytest.raises(click.BadParameter, match="expected"):
        run(tmp_path, *words)
