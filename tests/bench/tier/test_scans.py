"""All rows, those of Spark among them, from end to end."""

import json
from pathlib import Path

import pytest

from tests.cli.processes import timestone
from timestone_bench.tier.command import CASES


@pytest.mark.slow
@pytest.mark.spark
def test_it_measures_every_row_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """In a process of its own: a Java that runs already has its environment, without the keys of the bucket."""
    words = ["--megabytes", "1", "--repeat", "1", "--warm-up", "0", "--dir", str(tmp_path)]
    done = timestone("bench", "tier", *words, "--json", environment={"AWS_PROFILE": "not-used"})
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)["result"]
    rows = {row["case"]: row for row in result["rows"]}
    assert list(rows) == list(CASES)
    assert (rows["upload"]["peer"], rows["upload"]["goal"]) == ("obstore", 0.8)
    assert all(row["rate"]["median"] > 0 for row in rows.values())
    assert rows["append"]["ratio"]["median"] == 1.0
    assert list(tmp_path.iterdir()) == []
