"""Installs the line front the way any front is: a distribution on the path that announces an entry point."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def install_front(
    directory: Path, *, name: str = "line", target: str = "tests.cli.line_front:LineFront"
) -> str:
    """Make a distribution in `directory`; returns the PYTHONPATH on which it and its code are found."""
    info = directory / f"{name}_front-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-front\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[timestone.fronts]\n{name} = {target}\n")
    return f"{directory}:{ROOT}"
