"""The side-by-side table, from servers that are started and gone again."""

import json
from pathlib import Path

import click
import pytest

from tests.bench.commands import run as run_command
from timestone_bench import peers
from timestone_bench.errors import BenchmarkError
from timestone_bench.mqtt.peer_servers import find_program


def run(directory: Path, *words: str) -> int:
    return run_command(peers.command, *words, "--dir", str(directory))


@pytest.mark.skipif(find_program("mosquitto") is None, reason="mosquitto is not installed")
@pytest.mark.slow
def test_timestone_and_others_stand_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "latency", "--quick", "--json") == 0
    (comparison,) = json.loads(capsys.readouterr().out)["comparisons"]
    rows = {row["name"]: row for row in comparison["servers"]}
    assert list(rows)[:4] == ["timestone written", "timestone synced", "mosquitto", "mosquitto nodelay"]
    for name in ("mosquitto", "mosquitto nodelay"):
        assert rows[name]["faults"] == {}
        assert rows[name]["ratios"]["delivery_p50_us"]["median"] > 0
    assert list(tmp_path.iterdir()) == []


def test_a_match_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(click.BadParameter, match="'kafka' is not one of 'qos1'"):
        run(tmp_path, "kafka")


def test_without_any_other_server_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "installed_version", lambda program: None)
    with pytest.raises(BenchmarkError, match="expected mosquitto, nats-server or rumqttd on PATH"):
        run(tmp_path)
