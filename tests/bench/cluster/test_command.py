"""The command, from end to end on its own cluster; the other systems are where a user has them."""

import json
from pathlib import Path

import pytest

from tests.bench.commands import run
from timestone_bench.cluster.cases import QUICK, Case, Lab, Programs
from timestone_bench.cluster.command import command, measure
from timestone_bench.errors import BenchmarkError
from timestone_cli.errors import CommandError


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "nats"], "invalid --only: expected a part of a row's name .qos1 single; .*, got 'nats'"),
        (["--kafka", "missing"], "invalid --kafka: expected a path that exists, got missing"),
        (["--dir", "missing"], "missing is not a directory"),
    ],
)
def test_a_wrong_argument_is_reported_in_one_line(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandError, match=said):
        run(command, *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.cluster
def test_it_measures_a_cluster_beside_a_single_node_and_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, "--quick", "--only", "qos1", "--json", "--dir", str(tmp_path)) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    found = {(row["case"], row["figure"]): row for row in result["rows"]}
    assert {case for case, _ in found} == {"qos1 single", "qos1 cluster", "qos1 relayed", "qos1 bare"}
    assert found["qos1 cluster", "per_s"]["ratio"]["median"] > 0
    assert result["versions"] == {}
    reached = {goal["what"]: goal["value"] for goal in result["goals"]}
    assert reached["QoS 1 ÷ single node"] > 0 and reached["PUBACK, p50 ÷ NATS"] is None
    assert list(tmp_path.iterdir()) == []


def test_interrupted_run_has_printed_each_finished_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(lab: Lab) -> dict[str, float]:
        raise KeyboardInterrupt

    cases = {"kill": Case(lambda lab: {"pause_s": 3.25}, "kill"), "hand-over": Case(interrupt, "hand-over")}
    monkeypatch.setattr("timestone_bench.cluster.command.CASES", cases)
    with Lab(tmp_path, QUICK, Programs()) as lab, pytest.raises(KeyboardInterrupt):
        measure(lab, list(cases), 2, lambda line: None)
    assert capsys.readouterr() == ("", "kill, run 1 of 2: pause s 3.25\n")


def test_case_is_tried_again_and_left_out_when_it_fails_always(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(lab: Lab) -> dict[str, float]:
        raise BenchmarkError("no leader")

    tries = iter([BenchmarkError("the leader changed"), None, None])

    def recover(lab: Lab) -> dict[str, float]:
        if (error := next(tries)) is not None:
            raise error
        return {"per_s": 2.0}

    cases = {"qos1 single": Case(recover, ""), "qos1 cluster": Case(fail, "qos1 single")}
    monkeypatch.setattr("timestone_bench.cluster.command.CASES", cases)
    with Lab(tmp_path, QUICK, Programs()) as lab:
        taken, failures = measure(lab, list(cases), 2, lambda line: None)
    assert (taken, failures) == ({"qos1 single": [{"per_s": 2.0}] * 2}, {"qos1 cluster": "no leader"})


@pytest.mark.slow
def test_it_prints_tables_of_markdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command, "--quick", "--only", "raw", "--markdown", "--dir", str(tmp_path)) == 0
    assert "| raw copy | MB/s | " in capsys.readouterr().out
