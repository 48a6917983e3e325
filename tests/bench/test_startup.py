import argparse
import json

import pytest

from timestone_bench import startup
from timestone_bench.errors import BenchmarkError


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    startup.add_arguments(parser)
    return startup.run(parser.parse_args(list(words)), lambda text: None)


def test_commands_and_the_server_are_timed_beside_a_bare_python(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--repeat", "1", "--json") == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert set(result) == {"python_s", "help_s", "serve_s"}
    assert 0 < result["python_s"] < result["serve_s"], "the server is a Python, too"


def test_server_that_does_not_start_is_told_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMESTONE_ACK", "nonsense")
    with pytest.raises(BenchmarkError, match=r"did not start: .*TIMESTONE_ACK"):
        run("--repeat", "1")


def test_no_repeats_are_refused() -> None:
    with pytest.raises(BenchmarkError):
        run("--repeat", "0")
