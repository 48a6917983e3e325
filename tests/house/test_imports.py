"""Imports point down. The contracts are in pyproject.toml; here they run, and what they cannot see is checked."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT, import_name, modules


def test_import_contracts_hold() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [linter, "--no-logo", "--no-cache"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("timestone", "asyncio uvloop pyarrow pyspark rich mqtt_front timestone_cli"),
        (
            "timestone_cli.main",
            "asyncio numpy pyarrow pyspark rich sqlite3 timestone mqtt_front timestone_bench",
        ),
        ("pyspark_timestone", "pyarrow numpy timestone mqtt_front"),
    ],
)
def test_importing_a_package_loads_nothing_it_does_not_need(module: str, unwanted: str) -> None:
    """Spark imports every `pyspark_…` module there is, and `timestone --help` must answer at once."""
    probe = f"import sys, {module}; print(*sorted(set({unwanted.split()!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", probe], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.slow
def test_every_module_can_be_imported_first() -> None:
    """An import cycle shows only when the unlucky module comes first, so each gets its turn in a fresh interpreter."""
    names = [import_name(module) for module in modules() if module.name not in ("__main__.py",)]
    probe = (
        "import importlib, sys\n"
        "before = set(sys.modules)\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    for loaded in set(sys.modules) - before:\n"
        "        if loaded.split('.')[0] in {n.split('.')[0] for n in sys.argv[1:]}:\n"
        "            del sys.modules[loaded]\n"
    )
    done = subprocess.run([sys.executable, "-c", probe, *names], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
