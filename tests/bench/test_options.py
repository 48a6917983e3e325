from pathlib import Path

import click
import pytest

from tests.bench.commands import run
from timestone_bench.errors import BenchmarkError
from timestone_bench.options import AMOUNT, POSITIVE, directory_option, plot_writer, repeat_option


@pytest.mark.parametrize(("text", "value"), [("1", 1), ("20_000", 20_000)])
def test_positive_is_a_whole_number_from_1(text: str, value: int) -> None:
    assert POSITIVE.convert(text, None, None) == value


@pytest.mark.parametrize("text", ["0", "-3", "ten", "1.5"])
def test_positive_refuses_other_texts(text: str) -> None:
    with pytest.raises(click.BadParameter, match=f"expected a whole number from 1, got '{text}'"):
        POSITIVE.convert(text, None, None)


@pytest.mark.parametrize(("text", "value"), [("0", 0.0), ("1.5", 1.5), ("2e3", 2000.0)])
def test_amount_is_a_number_from_0(text: str, value: float) -> None:
    assert AMOUNT.convert(text, None, None) == value


@pytest.mark.parametrize("text", ["-0.1", "nan", "inf", "1e999", "much"])
def test_amount_refuses_other_texts(text: str) -> None:
    with pytest.raises(click.BadParameter, match=f"expected a number from 0, got '{text}'"):
        AMOUNT.convert(text, None, None)


def test_directory_and_repeat_have_defaults() -> None:
    found = []

    @click.command()
    @directory_option()
    @repeat_option(5)
    def shown(directory: Path, repeat: int) -> None:
        found.append((directory, repeat))

    run(shown)
    run(shown, "--dir", "there", "--repeat", "2")
    assert found == [(Path(), 5), (Path("there"), 2)]


def test_plot_writer_is_found_before_anything_is_measured(tmp_path: Path) -> None:
    assert plot_writer(None, "no.such.module") is None
    pytest.importorskip("matplotlib")
    with pytest.raises(BenchmarkError, match="missing is not a directory"):
        plot_writer(tmp_path / "missing" / "plot.png", "timestone_bench.engine.throughput_plot")
    assert plot_writer(tmp_path / "plot.png", "timestone_bench.engine.throughput_plot") is not None
