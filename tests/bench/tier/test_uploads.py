"""The rows of uploads, in a folder as a bucket."""

from pathlib import Path

import pytest

from tests.bench.commands import run
from timestone_bench.tier.command import command


@pytest.mark.slow
def test_a_bucket_that_is_given_is_left_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And the table fits a terminal of 80 columns."""
    words = ["--tier", (tmp_path / "bucket").as_uri(), "--megabytes", "1", "--repeat", "1"]
    assert run(command, *words, "--only", "upload", "--dir", str(tmp_path)) == 0
    printed = capsys.readouterr().out
    assert [line.split("  ")[0] for line in printed.splitlines()[-4:]] == [
        "obstore",
        "upload",
        "append",
        "append beside upload",
    ]
    assert all(len(line) <= 80 for line in printed.splitlines())
    assert [path for path in (tmp_path / "bucket").rglob("*") if path.is_file()] == []
