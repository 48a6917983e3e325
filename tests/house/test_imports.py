"""Imports point down. The contracts are in pyproject.toml; these tests run them, and check what they cannot see."""

import ast
import subprocess
import sys
from collections.abc import Container, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.house.tree import ROOT, import_name, modules
from timestone.kernel import loops


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
        (
            "timestone_cli.commands.serve, mqtt_front.front",
            "obstore timestone_tiering.tier timestone_tiering.uploading pyarrow pyspark rich argon2 jwt websockets",
        ),
        ("pyspark_timestone", "pyarrow numpy timestone mqtt_front"),
        pytest.param(
            "timestone",
            "crc32c importlib.metadata argparse timestone.kernel.pure timestone.kernel.open_records timestone.repair",
            marks=pytest.mark.skipif(bool(loops.REASON), reason="no compiled kernel here"),
        ),
    ],
)
def test_import_of_a_package_loads_no_unneeded_module(module: str, unwanted: str) -> None:
    """Spark imports every installed `pyspark_…` module, and `timestone --help` must answer at once."""
    probe = f"import sys, {module}; print(*sorted(set({unwanted.split()!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", probe], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split() == []


def names_imported(module: Path, known: Container[str]) -> Iterator[str]:
    """Return the modules that a module imports at import time: not those for types only, nor those of functions."""
    name = import_name(module)
    package = name if module.name == "__init__.py" else name.rpartition(".")[0]
    waiting: list[ast.stmt] = list(ast.parse((ROOT / module).read_text("utf-8")).body)
    while waiting:
        match waiting.pop():
            case ast.Import(names=aliases):
                yield from (alias.name for alias in aliases)
            case ast.ImportFrom(module=source, names=aliases, level=level):
                parent = ".".join(package.split(".")[: len(package.split(".")) - level + 1]) if level else ""
                source = ".".join(part for part in (parent, source) if part)
                for alias in aliases:
                    inner = f"{source}.{alias.name}"
                    yield inner if inner in known else source
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=otherwise):
                waiting += otherwise
            case ast.If(body=body, orelse=otherwise):
                waiting += [*body, *otherwise]
            case ast.Try(body=body, orelse=otherwise, finalbody=finally_, handlers=handlers):
                waiting += [
                    *body,
                    *otherwise,
                    *finally_,
                    *(one for handler in handlers for one in handler.body),
                ]
            case ast.ClassDef(body=body) | ast.With(body=body):
                waiting += body


def test_every_module_can_be_imported_first() -> None:
    """An import cycle shows only when a certain module is imported first, so there must not be any."""
    files = {import_name(module): module for module in modules()}
    graph = {
        name: {one for one in names_imported(file, files) if one in files} for name, file in files.items()
    }
    assert "timestone.store" in graph["timestone"] and "timestone.log" in graph["timestone.store"]
    assert graph["timestone.log"].isdisjoint({"timestone.store"}), "only its types need it"
    list(TopologicalSorter(graph).static_order())  # raises CycleError, which names the modules
