"""The notebooks run from their first cell to their last, in an empty folder, and are stored without outputs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.house.tree import ROOT, tracked_files

NOTEBOOKS = [path for path in tracked_files() if path.suffix == ".ipynb"]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=str)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(ROOT / path, as_version=4)  # type: ignore[no-untyped-call]
    # The kernel is this Python; its name in the file is whatever the reader's is called.
    client = NotebookClient(
        notebook, timeout=880, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    assert (tmp_path / "tables" / "clean").is_dir()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=str)
def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    notebook = nbformat.read(ROOT / path, as_version=4)  # type: ignore[no-untyped-call]
    assert [cell for cell in notebook.cells if cell.get("outputs") or cell.get("execution_count")] == []
