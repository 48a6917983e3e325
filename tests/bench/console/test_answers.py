import pytest

from timestone_bench.console import answers
from timestone_bench.console.answers import Answers
from timestone_bench.errors import BenchmarkError


def test_figures_are_those_of_the_next_event() -> None:
    lines = iter([b"retry: 1000\n", b"\n", b"event: records\n", b"data: {}\n", b"event: figures\n"])
    rest = iter([b'data: {"live":null}\n'])
    assert answers._figures(lambda: next(lines, b"") or next(rest, b"")) == {"live": None}
    with pytest.raises(BenchmarkError, match="the stream of the console ended"):
        answers._figures(lambda: b"")


def test_benchmark_that_did_not_ask_has_no_calls() -> None:
    assert Answers.none().calls == [] and Answers.none().page_bytes == {}
