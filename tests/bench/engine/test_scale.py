import json
from pathlib import Path

import pytest

from tests.bench.commands import run as run_command
from timestone_bench.engine import scale
from timestone_bench.errors import BenchmarkError


def run(*words: str) -> int:
    return run_command(scale.command, *words)


@pytest.mark.slow
def test_topics_cost_no_descriptor_and_logs_one_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--topics", "500", "--active", "50", "--logs", "20", "--dir", str(tmp_path), "--json") == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert (result["topics"]["count"], result["topics"]["fds"]) == (500, result["logs"]["fds"] - 19)
    assert result["topics"]["append_ms"] > 0
    assert result["logs"]["disk_bytes"] > 20 * 4096
    assert list(tmp_path.iterdir()) == []


def test_more_logs_than_descriptors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="descriptors"):
        run("--logs", str(10**9), "--dir", str(tmp_path))
