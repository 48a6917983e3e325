"""Shared parts of the micro-benchmarks: sizes, folders, and the contents of a stored run.

`make bench-micro` runs them with pytest-benchmark and compares with `stored.json`. With --benchmark-disable, as in the
tests, each runs once and small.
"""

import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from timestone import Store, open


@pytest.fixture(scope="session")
def small(pytestconfig: pytest.Config) -> bool:
    """Return whether rows only have to run, without being measured."""
    return bool(pytestconfig.getoption("benchmark_disable"))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the module; --basetemp chooses the disk."""
    return tmp_path_factory.mktemp("micro")


@pytest.fixture(scope="module")
def store(directory: Path) -> Iterator[Store]:
    with open(directory / "store", ack="written", min_free_bytes=0) as opened:
        yield opened


def pytest_benchmark_generate_machine_info() -> dict[str, object]:
    """The kind of machine; not its name."""
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "cpu": {},
    }


def pytest_benchmark_generate_commit_info() -> dict[str, object]:
    return {}


def pytest_benchmark_update_json(output_json: dict[str, Any]) -> None:
    """Make a stored run small: no single timings, four digits."""
    for row in output_json["benchmarks"]:
        row["stats"] = {
            name: float(f"{value:.4g}") if isinstance(value, float) else value
            for name, value in row["stats"].items()
            if name != "data"
        }
        for name in ("options", "params", "param", "name"):
            row.pop(name)
