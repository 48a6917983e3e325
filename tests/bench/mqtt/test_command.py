"""`timestone bench mqtt` from its options to its report."""

import json
from pathlib import Path

import click
import pytest

from tests.bench.commands import run as run_command
from tests.bench.mqtt.outcomes import outcome
from tests.support.mqtt_process import MqttProcess
from timestone_bench.errors import BenchmarkError
from timestone_bench.mqtt import command
from timestone_bench.mqtt.scenario import Outcome, Scenario
from timestone_cli.errors import UsageError


def run(directory: Path, *words: str) -> int:
    return run_command(command.command, *words, "--dir", str(directory))


@pytest.mark.slow
def test_it_starts_a_server_measures_it_and_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "fan-in",
        "--messages",
        "500",
        "--clients",
        "2",
        "--repeat",
        "1",
        "--ack",
        "written",
        "--ack",
        "synced",
    ]
    assert run(tmp_path, *words, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["benchmark"] == "mqtt"
    (comparison,) = result["comparisons"]
    assert (comparison["scenario"]["publishers"], comparison["scenario"]["messages"]) == (2, 500)
    assert [row["name"] for row in comparison["servers"]] == [
        "timestone written",
        "timestone synced",
        "null server",
        "null server, writes",
    ]
    assert all(row["figures"]["cpu_us"]["median"] > 0 for row in comparison["servers"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_each_run_of_connections_has_a_server_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "connection", "--clients", "200", "--idle", "0.1", "--repeat", "2", "--json") == 0
    (comparison,) = json.loads(capsys.readouterr().out)["comparisons"]
    ours = comparison["servers"][0]
    assert comparison["repeat"] == 2 and ours["faults"] == {}
    # On a server that had as many before, memory would not grow a second time.
    assert ours["figures"]["rss_bytes"]["min"] > 1024


@pytest.mark.slow
def test_servers_that_run_already_are_compared_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with MqttProcess(tmp_path / "one") as one, MqttProcess(tmp_path / "other") as other:
        words = [
            "point-to-point", "--clients", "2", "--messages", "100", "--rate", "1000", "--repeat", "1",
            "--server", f"127.0.0.1:{one.address[1]}", "--pid", str(one.process.pid),
            "--against", f"other=127.0.0.1:{other.address[1]}",
        ]  # fmt: skip
        picture = tmp_path / "picture.png"
        assert run(tmp_path, *words, "--plot", str(picture)) == 0
    said = capsys.readouterr().out
    assert "point-to-point: QoS 1, 100 bytes, 2 → 2, 100 messages, 1,000/s" in said
    assert "Nothing was lost, came twice or out of order." in said
    assert picture.exists()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--pid", "7"], "--pid needs --server"),
        (["fan-in", "--payload-bytes", "15"], "expected 16 or more for counter and time, got 15"),
        (
            ["fan-in", "--clients", "9", "--messages", "8"],
            "expected 9 or more, one for each publisher, got 8",
        ),
        (["session-unload", "--qos", "0"], "at QoS 0"),
        (["back-pressure", "--rate", "0"], "latencies are compared"),
    ],
)
def test_wrong_combinations_are_usage_errors(tmp_path: Path, words: list[str], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        run(tmp_path, *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["connection", "--clients", "100_000_000"], "connections need"),
        (["fan-in", "--plot", "no-such-directory/x.png"], "no-such-directory is not a directory"),
        (["fan-in", "--server", "127.0.0.1:1", "--repeat", "1"], "Connection refused"),
    ],
)
def test_what_cannot_work_is_said_in_one_line(tmp_path: Path, words: list[str], complaint: str) -> None:
    with pytest.raises(BenchmarkError, match=complaint):
        run(tmp_path, *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_interrupted_run_shows_the_scenarios_that_it_has_measured(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(scenario: Scenario, *others: object) -> dict[str, list[Outcome]]:
        if scenario.name == "fan-out":
            raise KeyboardInterrupt
        return {"timestone synced": [outcome(200_000, 3.0)], "other": [outcome(50_000, 4.0, lost=7)]}

    monkeypatch.setattr(command, "_measure", measure)
    with pytest.raises(click.Abort):
        run(tmp_path, "fan-in", "fan-out", "--repeat", "1", *words)
    said = capsys.readouterr().out
    if words:
        (comparison,) = json.loads(said)["comparisons"]
        assert [row["name"] for row in comparison["servers"]] == ["timestone synced", "other"]
    else:
        assert "fan-in: QoS 1" in said and "warning: other: 7 lost" in said and "fan-out" not in said


def test_unknown_scenario_is_wrong_usage_that_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(click.BadParameter, match="'fan-down' is not one of 'connection', 'fan-in'"):
        run(tmp_path, "fan-down")
