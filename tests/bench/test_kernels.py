import dataclasses
import json

import click
import pytest

from tests.bench.commands import run as run_command
from timestone_bench import kernels
from timestone_bench.errors import BenchmarkError


def run(*words: str) -> int:
    return run_command(kernels.command, *words)


def test_every_function_of_both_kernels_has_a_row() -> None:
    functions = {case.name.partition(",")[0] for case in kernels.cases()}
    assert functions == {
        "gathered", "fill_entries", "valid_count", "proven_count", "scan_publishes", "frame_records",
    }  # fmt: skip


@pytest.mark.parametrize("case", list(kernels.cases()), ids=lambda case: case.name)
def test_both_twins_do_the_same_work(case: kernels.KernelCase) -> None:
    native = kernels._module(case.native)
    if native is None:
        pytest.skip("the compiled kernel was not built: make install")
    assert case.call(native) == case.call(kernels._module(case.pure))


def test_rows_have_times_of_both_and_their_ratio() -> None:
    row = kernels.measure_case(next(kernels.cases()), 2, run_s=0)
    assert row.pure_ns > 0
    assert (row.native_ns is None) is (row.ratio is None)


def test_a_kernel_that_was_not_built_leaves_its_column_empty(capsys: pytest.CaptureFixture[str]) -> None:
    case = dataclasses.replace(next(kernels.cases()), native="timestone._never_built")
    row = kernels.measure_case(case, 1, run_s=0)
    assert (row.native_ns, row.ratio) == (None, None)
    kernels.print_rows([row], ["a machine"])
    assert "not built" in capsys.readouterr().out


def test_json_has_all_rows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    few = list(kernels.cases())[:2]
    monkeypatch.setattr(kernels, "cases", lambda: few)
    assert run("--json", "--repeat", "1") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["benchmark"] == "kernels"
    assert [row["name"] for row in result["rows"]] == [case.name for case in few]


def test_no_repeat_is_refused() -> None:
    with pytest.raises((BenchmarkError, click.UsageError)):
        run("--repeat", "0")
