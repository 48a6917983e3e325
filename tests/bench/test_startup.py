import json

import click
import pytest

from tests.bench.commands import run as run_command
from timestone_bench import startup
from timestone_bench.errors import BenchmarkError


def run(*words: str) -> int:
    return run_command(startup.command, *words)


@pytest.mark.slow
def test_commands_and_the_server_are_timed_beside_a_bare_python(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--repeat", "1", "--json") == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert set(result) == {"python_s", "help_s", "serve_s"}
    assert min(result.values()) > 0


def test_each_figure_is_the_median_of_its_rounds_without_the_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a machine that stands still now and then, no one start need be shorter than another."""
    bare, ready = iter([99.0, 2.0, 1.0, 3.0]), iter([99.0, 30.0, 10.0, 20.0])
    monkeypatch.setattr(startup, "_command_s", lambda command: 7.0 if "--help" in command else next(bare))
    monkeypatch.setattr(startup, "_ready_s", lambda root: next(ready))
    assert run("--repeat", "3", "--json") == 0
    assert json.loads(capsys.readouterr().out)["result"] == {"python_s": 2.0, "help_s": 7.0, "serve_s": 20.0}


@pytest.mark.slow
def test_a_server_that_does_not_start_is_reported_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMESTONE_ACK", "nonsense")
    with pytest.raises(BenchmarkError, match=r"did not start: .*TIMESTONE_ACK"):
        run("--repeat", "1")


def test_no_repeats_are_refused() -> None:
    with pytest.raises(click.BadParameter, match="expected a whole number from 1, got '0'"):
        run("--repeat", "0")
