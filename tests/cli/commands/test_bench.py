import json
from pathlib import Path

import pytest

from tests.cli.processes import timestone as command


@pytest.mark.slow
def test_a_benchmark_is_found_by_name_and_run(tmp_path: Path) -> None:
    words = ["--record-bytes", "100", "--count", "1024", "--repeat", "1", "--json"]
    done = command("bench", "segment-throughput", *words, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["benchmark"] == "segment-throughput"
    assert list(tmp_path.iterdir()) == []


def test_a_benchmark_that_cannot_run_says_why_in_one_line(tmp_path: Path) -> None:
    done = command("bench", "segment-throughput", "--dir", "nowhere", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        1,
        "timestone bench segment-throughput: nowhere is not a directory\n",
    )


def test_a_benchmark_whose_library_is_missing_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ModuleNotFoundError('not here', name='pyspark')\n")
    done = command("bench", "spark", cwd=tmp_path, environment={"PYTHONPATH": str(tmp_path)})
    said = "spark needs pyspark, which is not installed: pip install '.[spark]' in a clone"
    assert (done.returncode, done.stderr) == (1, f"timestone bench: {said}\n")


def test_each_benchmark_has_help_of_its_own() -> None:
    done = command("bench", "segment-throughput", "--help")
    assert done.returncode == 0
    assert "--record-bytes" in done.stdout
    assert "Examples:" in done.stdout
