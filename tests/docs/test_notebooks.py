"""The notebooks run from their first cell to their last, in an empty folder, and are stored with their outputs."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest

from tests.house.tree import ROOT, tracked_files

NOTEBOOKS = [path for path in tracked_files() if path.suffix == ".ipynb"]


def program() -> ModuleType:
    """Return the program of `make notebooks`, which is beside the notebooks and in no package."""
    spec = importlib.util.spec_from_file_location("execute", ROOT / "docs/notebooks/execute.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def printed(notebook: Any) -> list[str]:
    """Return what each cell printed, with the kinds of data that it showed in place of pictures."""
    return [
        "".join(
            one["text"] if one.output_type == "stream" else f"{sorted(one.data)}\n"
            for one in cell.get("outputs", [])
        )
        for cell in notebook.cells
    ]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=str)
def test_notebook_gives_the_outputs_that_it_is_stored_with(path: Path, tmp_path: Path) -> None:
    stored = nbformat.read(ROOT / path, as_version=4)  # type: ignore[no-untyped-call]
    assert printed(program().executed(ROOT / path, tmp_path)) == printed(stored), "run: make notebooks"
    assert (tmp_path / "tables" / "clean").is_dir()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=str)
def test_each_cell_of_a_notebook_was_executed_in_order(path: Path) -> None:
    notebook = nbformat.read(ROOT / path, as_version=4)  # type: ignore[no-untyped-call]
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert all(cell.outputs for cell in notebook.cells if cell.cell_type == "code")
