import argparse
from pathlib import Path

import pytest

from timestone_bench.errors import BenchmarkError
from timestone_bench.options import add_directory, plot_writer, positive


@pytest.mark.parametrize(("text", "value"), [("1", 1), ("20_000", 20_000)])
def test_what_counts_is_above_zero(text: str, value: int) -> None:
    assert positive(text) == value


@pytest.mark.parametrize(
    ("text", "why"), [("0", "below 1"), ("-3", "below 1"), ("ten", "not a whole number")]
)
def test_what_does_not_count_is_refused_in_words(text: str, why: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=why):
        positive(text)


def test_directory_is_this_one_unless_told_otherwise() -> None:
    parser = argparse.ArgumentParser()
    add_directory(parser)
    assert parser.parse_args([]).dir == Path()
    assert parser.parse_args(["--dir", "there"]).dir == Path("there")


def test_what_draws_is_found_before_anything_is_measured(tmp_path: Path) -> None:
    assert plot_writer(None, "no.such.module") is None
    pytest.importorskip("matplotlib")
    with pytest.raises(BenchmarkError, match="missing is not a directory"):
        plot_writer(tmp_path / "missing" / "plot.png", "timestone_bench.throughput_plot")
    assert plot_writer(tmp_path / "plot.png", "timestone_bench.throughput_plot") is not None
