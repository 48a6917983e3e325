"""The micro-benchmarks run, and the stored run has their rows and nothing of a machine but its kind."""

import json
import platform
import subprocess
import sys

import pytest

from tests.house.tree import MICRO, ROOT

STORED = ROOT / MICRO / "stored.json"


def pytest_run(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", str(MICRO), *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.slow
def test_every_micro_benchmark_runs_once() -> None:
    assert " passed" in pytest_run("--benchmark-disable")


@pytest.mark.slow
def test_stored_run_has_every_row_but_those_of_io_uring() -> None:
    collected = {line for line in pytest_run("--collect-only").splitlines() if "::" in line}
    stored = {row["fullname"] for row in json.loads(STORED.read_text("utf-8"))["benchmarks"]}
    assert {row for row in collected if "io_uring" not in row} == stored


def test_stored_run_is_small_and_names_no_machine() -> None:
    text = STORED.read_text("utf-8")
    assert len(text) < 100_000
    assert platform.node() not in text
    assert "data" not in json.loads(text)["benchmarks"][0]["stats"]
