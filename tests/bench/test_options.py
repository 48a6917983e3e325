import argparse
from pathlib import Path

import pytest

from timestone_bench.errors import BenchmarkError
from timestone_bench.options import add_directory, amount, plot_writer, positive


@pytest.mark.parametrize(("text", "value"), [("1", 1), ("20_000", 20_000)])
def test_what_counts_is_above_zero(text: str, value: int) -> None:
    assert positive(text) == value


@pytest.mark.parametrize(
    ("text", "why"), [("0", "below 1"), ("-3", "below 1"), ("ten", "not a whole number")]
)
def test_what_does_not_count_is_refused_in_words(text: str, why: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=why):
        positive(text)


@pytest.mark.parametrize(("text", "value"), [("0", 0.0), ("1.5", 1.5), ("2e3", 2000.0)])
def test_an_amount_is_a_number_from_0_on(text: str, value: float) -> None:
    assert amount(text) == value


@pytest.mark.parametrize("text", ["-0.1", "nan", "inf", "1e999", "much"])
def test_other_amounts_are_refused_in_words(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a number"):
        amount(text)


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
