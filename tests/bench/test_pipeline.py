import json
from pathlib import Path

import pytest

from tests.bench.commands import run as run_command
from timestone_bench import pipeline

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_pipeline_and_plain_job_take_the_same_messages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--count", "4000", "--devices", "20", "--batch-records", "2000", "--repeat", "1"]
    assert run_command(pipeline.command, *words, "--dir", str(tmp_path), "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["count"], result["devices"], len(result["batches_s"])) == (4000, 20, 3)
    assert result["ratio"] == pytest.approx(result["plain_s"] / result["pipeline_s"])
    assert {"bronze, clean, dead_letters", "duplicates", "windows", "last"} <= set(result["stages_s"])
    assert sum(result["stages_s"].values()) == pytest.approx(result["pipeline_s"], rel=0.01)
    assert not any(tmp_path.iterdir())
