"""The benchmark of the Spark source: its data is what it says, and it runs from end to end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

import timestone
from tests.bench.commands import run
from timestone_bench.spark_read import CASES, LOG, TOPIC_COUNT, command, fill, message
from timestone_cli.errors import CommandError

COMMAND = [sys.executable, "-m", "timestone_cli", "bench", "spark"]


@pytest.mark.parametrize("size", [100, 200])
def test_messages_have_the_size_and_differ(size: int) -> None:
    made = {message(number, size) for number in range(3000)}
    assert len(made) == 3000
    assert {len(one) for one in made} == {size}
    assert json.loads(message(7, size))["seq"] == 7


def test_fill_spreads_the_records_over_the_topics(tmp_path: Path) -> None:
    fill(tmp_path, 2 * TOPIC_COUNT, 100)
    with timestone.view(tmp_path) as view:
        log = view.log(LOG)
        assert (log.end_offset, len(log.topics)) == (2 * TOPIC_COUNT, TOPIC_COUNT)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--only", "nothing"],
            "invalid --only: expected a part of a row's name .Parquet; .*, got 'nothing'",
        ),
        (["--record-bytes", "20"], "invalid --record-bytes: expected 7. or more"),
        (["--dir", "missing"], "missing is not a directory"),
    ],
)
def test_a_wrong_argument_is_reported_before_there_is_a_store(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandError, match=said):
        run(command, "--count", "1000", *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--count", "--record-bytes", "--repeat"])
def test_a_count_of_0_is_refused(option: str) -> None:
    with pytest.raises(click.BadParameter, match="expected a whole number from 1, got '0'"):
        run(command, option, "0")


@pytest.mark.spark
def test_java_is_started_with_the_options_that_it_is_given(tmp_path: Path) -> None:
    # More than the benchmark lets it have in all: Java says so, and ends.
    words = ["--java=-Xms3g", "--count", "1000", "--repeat", "1", "--warm-up", "0", "--dir", str(tmp_path)]
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "Spark did not start" in done.stderr


@pytest.mark.spark
def test_it_measures_every_case_and_leaves_nothing_behind(tmp_path: Path) -> None:
    words = ["--count", "2000", "--repeat", "1", "--warm-up", "1", "--json", "--dir", str(tmp_path)]
    done = subprocess.run([*COMMAND, *words], stdout=subprocess.PIPE, text=True, check=True, env=os.environ)
    result = json.loads(done.stdout)
    assert (result["count"], result["java"]) == (2000, "")
    rows = {row["case"]: row for row in result["rows"]}
    assert list(rows) == list(CASES)
    assert rows["Parquet"]["ratio"] == 1.0
    assert rows["payload=json"]["peer"] == "from_json"
    assert result["start_s"] > 0
    assert all(row["records_per_s"] > 0 for row in result["rows"])
    assert list(tmp_path.iterdir()) == []
