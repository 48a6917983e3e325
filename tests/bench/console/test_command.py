"""The benchmark of the console in its short form, on real servers and a real console."""

import json
from pathlib import Path

import click
import pytest

from tests.bench.commands import run
from timestone_bench.console.command import ANSWERS, COSTS, Goal, command
from timestone_bench.console.costs import PLAN

pytestmark = pytest.mark.slow


def test_short_form_measures_each_goal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run(command, "--quick", "--clients", "30", "--topics", "300", "--seconds", "1", "--json")
    result = json.loads(capsys.readouterr().out)["result"]
    assert [one["figure"] for one in result["goals"]] == [goal.figure for goal in (*COSTS, *ANSWERS)]
    assert {load: set(modes) for load, modes in result["costs"].items()} == {
        load: {mode for group in groups for mode in group} for load, groups in PLAN.items()
    }
    assert all(one["size_bytes"] > 0 for one in result["answers"]["calls"])
    figures = {one["figure"]: one["value"] for one in result["goals"]}
    assert 20 < figures["largest page"] < 150
    assert figures["wake-ups without a browser"] < 1  # uvicorn's own loop has ten
    assert result["costs"]["steady"]["5 browsers"]["console_busy"]["median"] > 0
    assert result["costs"]["steady"]["1 browser"]["console_busy"]["median"] > 0
    assert result["costs"]["full speed"]["off"]["console_busy"]["median"] == 0
    assert list(tmp_path.iterdir()) == []


def test_one_part_is_measured_alone_and_printed_as_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run(command, "--quick", "--only", "answers", "--clients", "5", "--topics", "50")
    printed = capsys.readouterr().out
    assert "overview: series" in printed and "age of a live figure" in printed
    assert "full speed" not in printed


def test_unknown_part_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(click.BadParameter, match="'costs', 'answers'"):
        run(command, "--only", "nothing", "--dir", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_goals_name_each_figure_once() -> None:
    goals: tuple[Goal, ...] = (*COSTS, *ANSWERS)
    assert len({goal.figure for goal in goals}) == len(goals)
