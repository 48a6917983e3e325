"""`python -m timestone` is the command."""

import importlib.metadata
import subprocess
import sys
from typing import Any

import pytest

from timestone.__main__ import main


@pytest.mark.slow
def test_module_runs_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "timestone", "--version"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("timestone ")
    wrong = subprocess.run(
        [sys.executable, "-m", "timestone", "apend"], capture_output=True, text=True, timeout=60
    )
    assert (wrong.returncode, wrong.stdout) == (64, "")
    assert "did you mean 'append'" in wrong.stderr


def test_module_says_what_to_install_when_the_command_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(**_: Any) -> tuple[()]:
        return ()

    monkeypatch.setattr("timestone.__main__.entry_points", none)
    assert main() == 1
    assert "pip install" in capsys.readouterr().err
    assert importlib.metadata.entry_points(group="console_scripts", name="timestone")
