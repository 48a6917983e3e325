"""The source tree as the house tests see it: which folder is which package, and which files are ours."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

PACKAGES = {
    "timestone": "timestone",
    "mqtt_front": "mqtt_front",
    "pyspark_timestone": "pyspark_timestone",
    "cli": "timestone_cli",
    "bench": "timestone_bench",
    "pipeline": "timestone_pipeline",
}
"""Folder -> the name it is imported by."""


def modules() -> Iterator[Path]:
    """Every module of every package, relative to ROOT, sorted."""
    for folder in PACKAGES:
        yield from sorted(path.relative_to(ROOT) for path in (ROOT / folder).rglob("*.py"))


def import_name(module: Path) -> str:
    """`cli/main.py` -> `timestone_cli.main`."""
    folder, *inner = module.with_suffix("").parts
    return ".".join([PACKAGES[folder], *(part for part in inner if part != "__init__")])


def tracked_files() -> list[Path]:
    """Every file that git knows or would add, relative to ROOT."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    paths = (Path(name.decode()) for name in listed.stdout.split(b"\0") if name)
    return sorted(path for path in paths if (ROOT / path).is_file())
