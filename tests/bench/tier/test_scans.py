"""All rows, those of Spark among them, from end to end."""

import json
import os
from pathlib import Path

import pytest

from tests.bench.commands import run
from timestone_bench.tier.command import CASES, command


@pytest.mark.slow
@pytest.mark.spark
def test_it_measures_every_row_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "not-used")
    words = ["--megabytes", "1", "--repeat", "1", "--warm-up", "0", "--dir", str(tmp_path)]
    assert run(command, *words, "--json") == 0
    result = json.loads(capsys.readouterr().out)["result"]
    rows = {row["case"]: row for row in result["rows"]}
    assert list(rows) == list(CASES)
    assert (rows["upload"]["peer"], rows["upload"]["goal"]) == ("obstore", 0.8)
    assert all(row["rate"]["median"] > 0 for row in rows.values())
    assert rows["append"]["ratio"]["median"] == 1.0
    assert list(tmp_path.iterdir()) == []
    assert os.environ["AWS_PROFILE"] == "not-used" and "AWS_ENDPOINT_URL" not in os.environ
