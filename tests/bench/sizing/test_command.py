import json

import click
import pytest

from tests.bench.commands import run
from timestone_bench.sizing.command import command
from timestone_bench.sizing.constants import MEASURED
from timestone_cli.errors import UsageError


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(command, *words) == 0
    return capsys.readouterr().out


def test_json_has_the_fleet_and_its_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--devices",
        "50000",
        "--interval",
        "60",
        "--plain",
        "--price",
        "core=0",
        "--set",
        "led message=7",
    ]
    found = json.loads(printed(capsys, *words, "--json"))
    assert (found["fleet"]["interval_s"], found["fleet"]["tls"]) == (60.0, False)
    assert (found["constants"]["price of core"], found["constants"]["led message"]) == (0.0, 7.0)
    (one,) = found["sizes"]
    assert (one["devices"], one["nodes"], one["costs"]["cores"]) == (50_000, 3, 0.0)
    assert one["cost_per_device"] == pytest.approx(one["cost"] / 50_000)


def test_table_has_a_column_for_each_fleet(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "--markdown").splitlines()
    assert lines[0] == "| devices | 10 | 1,000 | 100,000 | 1,000,000 |"
    assert "| nodes | 3 | 3 | 3 | " in "\n".join(lines)
    assert all(len(line) <= 80 for line in printed(capsys).splitlines())


def test_constants_are_printed_with_their_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert MEASURED["led message"].source in printed(capsys, "--constants", "--markdown")
    assert json.loads(printed(capsys, "--constants", "--json"))["measured"]["connects"]["value"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--price", "gold=1"], "invalid name 'price of gold': expected one of single message, "),
        (["--replicas", "1"], "one server is not enough for 100,000 devices; expected --replicas 3"),
    ],
)
def test_a_wrong_argument_is_reported_in_one_line(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        run(command, *words)


def test_a_price_without_a_number_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="expected NAME=NUMBER, got 'core'"):
        run(command, "--price", "core")
