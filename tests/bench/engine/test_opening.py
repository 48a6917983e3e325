import json
from pathlib import Path

import click
import pytest

from tests.bench.commands import run as run_command
from timestone_bench.engine import opening
from timestone_bench.errors import BenchmarkError
from timestone_cli.errors import CommandError

pytestmark = pytest.mark.slow


def run(*words: str) -> int:
    return run_command(opening.command, *words)


def test_store_of_a_killed_owner_is_opened_warm_and_cold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--gigabytes", "0.002", "--repeat", "1", "--dir", str(tmp_path), "--json") == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert result["gigabytes"] == pytest.approx(0.002)
    assert (result["segments"], result["unclosed_megabytes"]) == (1, pytest.approx(2))
    assert result["warm_open_s"] > 0
    assert result["cold_open_s"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [("--gigabytes", "0"), ("--repeat", "0"), ("--gigabytes", "1e9")])
def test_values_out_of_range_are_refused(tmp_path: Path, words: tuple[str, str]) -> None:
    with pytest.raises((CommandError, click.UsageError)):
        run(*words, "--dir", str(tmp_path))
    with pytest.raises(BenchmarkError):
        run("--dir", str(tmp_path / "missing"))
