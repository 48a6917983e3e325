"""Run the notebooks beside this file in an empty folder each, and store them with their outputs: `make notebooks`."""

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

TIMEOUT_S = 880


def executed(path: Path, folder: Path) -> NotebookNode:
    """Return the notebook with the outputs of a run in `folder`, by this Python.

    What differs from run to run is left out: standard error, and when each cell ran."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=TIMEOUT_S, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    metadata = dict(notebook.metadata)
    client.execute()
    notebook.metadata = metadata
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    return notebook


def main() -> None:
    """Execute every notebook of the folder, or those that are named."""
    for path in [Path(name) for name in sys.argv[1:]] or sorted(Path(__file__).parent.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            notebook = executed(path, Path(folder))
        path.write_text(nbformat.writes(notebook) + "\n")
        print(f"{path}: {sum(cell.cell_type == 'code' for cell in notebook.cells)} cells executed")


if __name__ == "__main__":
    main()
