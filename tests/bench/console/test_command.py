"""The benchmark of the console in its short form, on real servers and a real console."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from tests.bench.commands import run
from timestone_bench.console.answers import Answer, Answers
from timestone_bench.console.command import ANSWERS, COSTS, Goal, command, print_answers, print_costs
from timestone_bench.console.costs import PLAN, Costs, Run

pytestmark = pytest.mark.slow


def measured(capsys: pytest.CaptureFixture[str], part: str, *words: str) -> dict[str, Any]:
    """Return the result of the short form of a part."""
    run(command, "--quick", "--only", part, *words, "--json")
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["result"]
    return found


def test_short_form_measures_what_figures_and_browsers_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = measured(capsys, "costs", "--clients", "30", "--seconds", "1")
    assert [one["figure"] for one in result["goals"]] == [goal.figure for goal in COSTS]
    costs = result["costs"]
    assert {load: set(modes) for load, modes in costs.items()} == {
        load: {mode for group in groups for mode in group} for load, groups in PLAN.items()
    }
    assert costs["steady"]["5 browsers"]["console_busy"]["median"] > 0
    assert costs["steady"]["1 browser"]["console_busy"]["median"] > 0
    assert costs["full speed"]["off"]["console_busy"]["median"] == 0
    assert result["answers"]["calls"] == [] and list(tmp_path.iterdir()) == []


def test_short_form_measures_the_answers_of_a_console(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = measured(capsys, "answers", "--clients", "30", "--topics", "300")
    assert [one["figure"] for one in result["goals"]] == [goal.figure for goal in ANSWERS]
    assert all(one["size_bytes"] > 0 for one in result["answers"]["calls"])
    figures = {one["figure"]: one["value"] for one in result["goals"]}
    assert 20 < figures["largest page"] < 150
    assert figures["wake-ups without a browser"] < 1  # uvicorn's own loop has ten
    assert result["costs"] == {} and list(tmp_path.iterdir()) == []


def test_tables_have_each_call_each_page_and_each_mode(capsys: pytest.CaptureFixture[str]) -> None:
    call = Answer(page="overview", path="/api/v1/series?name=x", p50_ms=1, p95_ms=2, size_bytes=3000)
    print_answers(replace(Answers.none(), calls=[call], page_bytes={"overview": 71_000}))
    run_of = Run(
        per_s=1, server_busy=1, server_message_us=1, console_busy=1, ack_p50_us=1, ack_p99_us=1, rss_bytes=1
    )
    print_costs(
        Costs({load: {mode: [run_of] for group in groups for mode in group} for load, groups in PLAN.items()})
    )
    printed = capsys.readouterr().out
    assert "overview: series" in printed and "71.0" in printed
    assert all(mode in printed for groups in PLAN.values() for group in groups for mode in group)


def test_unknown_part_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(click.BadParameter, match="'costs', 'answers'"):
        run(command, "--only", "nothing", "--dir", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_goals_name_each_figure_once() -> None:
    goals: tuple[Goal, ...] = (*COSTS, *ANSWERS)
    assert len({goal.figure for goal in goals}) == len(goals)
