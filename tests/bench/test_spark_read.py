"""The benchmark of the Spark source: its data is what it says, and it runs from end to end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import timestone
from timestone_bench.spark_read import LOG, TOPIC_COUNT, fill, message


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


@pytest.mark.spark
def test_it_measures_every_case_and_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "timestone_bench.spark_read"]
    words = ["--count", "2000", "--repeat", "1", "--warm-up", "1", "--json", "--dir", str(tmp_path)]
    done = subprocess.run([*command, *words], stdout=subprocess.PIPE, text=True, check=True, env=os.environ)
    result = json.loads(done.stdout)
    assert result["count"] == 2000
    rows = {row["case"]: row for row in result["rows"]}
    assert rows["Parquet"]["ratio"] == 1.0
    assert rows["payload=json"]["peer"] == "from_json"
    assert result["start_s"] > 0
    assert all(row["records_per_s"] > 0 for row in result["rows"])
    assert list(tmp_path.iterdir()) == []
