"""The command of the benchmark of tiering, before it measures; `test_scans` and `test_uploads` run it."""

from pathlib import Path

import pytest

from tests.bench.commands import run
from timestone_bench.tier.command import command
from timestone_cli.errors import CommandError


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--only", "nothing"],
            "invalid --only: expected a part of a row's name .obstore; .*, got 'nothing'",
        ),
        (["--megabytes", "0.1"], "invalid --megabytes: expected 0.2 or more, got 0.1"),
        (["--tier", "ftp://x"], "invalid URL 'ftp://x'"),
        (["--dir", "missing"], "missing is not a directory"),
    ],
)
def test_a_wrong_argument_is_reported_in_one_line(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandError, match=said):
        run(command, *words)
    assert list(tmp_path.iterdir()) == []
