import json
import sys
from pathlib import Path

import pytest

from tests.bench.commands import run as run_command
from timestone_bench import compare
from timestone_bench.errors import BenchmarkError


def checkout(path: Path, program: str) -> str:
    """Make a folder with a `.venv` whose Python is this shell program."""
    python = path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{program}\n")
    python.chmod(0o755)
    return str(path)


@pytest.mark.slow
def test_rows_of_both_checkouts_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = (checkout(tmp_path / name, f'exec {sys.executable} "$@"') for name in ("old", "new"))
    assert run_command(compare.command, old, new, "--repeat", "1", "--count", "1", "--json") == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert list(result) == [
        "append 1", "append 64", "append 1024", "read", "record", "publish QoS 0", "publish QoS 1",
    ]  # fmt: skip
    for row in result.values():
        assert row["ratio"] == row["old_us"] / row["new_us"]


def test_ratios_are_of_medians_and_runs_take_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = {"old": iter([1.0, 9.0, 2.0]), "new": iter([4.0, 4.0, 1.0])}
    turns = []

    def measured(checkout: Path, count: int) -> list[tuple[str, float]]:
        turns.append(checkout.name)
        return [("append 1", next(times[checkout.name]))]

    monkeypatch.setattr(compare, "_measured", measured)
    assert run_command(compare.command, str(tmp_path / "old"), str(tmp_path / "new"), "--repeat", "3") == 0
    assert turns == ["old", "new"] * 3
    assert capsys.readouterr().out.splitlines()[-1].split() == ["append", "1", "2.000", "4.000", "0.500"]


def test_checkout_that_cannot_be_measured_is_named_with_the_reason(tmp_path: Path) -> None:
    broken = checkout(tmp_path, "echo 'no such module' >&2; exit 3")
    with pytest.raises(BenchmarkError, match=r"\.venv/bin/python .*: no such module"):
        run_command(compare.command, broken, broken, "--repeat", "1")
