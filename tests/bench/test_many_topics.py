import json
from pathlib import Path

import click
import pytest

from tests.bench.commands import run as run_command
from timestone_bench import many_topics
from timestone_bench.errors import BenchmarkError


def run(*words: str) -> int:
    return run_command(many_topics.command, *words)


def test_both_logs_get_the_same_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--topics", "300", "--count", "2000", "--repeat", "2", "--dir", str(tmp_path))
    assert run(*words, "--json") == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert (result["topics"], result["records"]) == (300, 1 + 2 * 2 * 2000)
    assert result["append_ratio"] > 0
    assert result["append_names_ratio"] > 0
    assert set(result["reads_s"]) == {"one topic", "one site in a hundred", "everything"}
    assert list(tmp_path.iterdir()) == []
    assert run(*words) == 0
    assert "append by topic id" in capsys.readouterr().out


def test_values_out_of_range_are_refused(tmp_path: Path) -> None:
    with pytest.raises((BenchmarkError, click.UsageError)):
        run("--topics", "0", "--dir", str(tmp_path))
    with pytest.raises(BenchmarkError):
        run("--dir", str(tmp_path / "missing"))
