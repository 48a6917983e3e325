"""The source tree for the house tests: which folder is which package, and which files belong to the project."""

import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

PACKAGES = {
    "timestone": "timestone",
    "mqtt_front": "mqtt_front",
    "pyspark_timestone": "pyspark_timestone",
    "cli": "timestone_cli",
    "bench": "timestone_bench",
    "pipeline": "timestone_pipeline",
    "tiering": "timestone_tiering",
    "access": "timestone_access",
    "flight_front": "flight_front",
    "console": "timestone_console",
    "cluster": "timestone_cluster",
}
"""Folder -> import name."""

MICRO = Path("bench", "micro")
"""Benchmarks that pytest runs from the source tree: no modules of a package."""


def modules() -> Iterator[Path]:
    """Return every module of every package, relative to ROOT, sorted."""
    for folder in PACKAGES:
        paths = sorted(path.relative_to(ROOT) for path in (ROOT / folder).rglob("*.py"))
        yield from (path for path in paths if not path.is_relative_to(MICRO))


def import_name(module: Path) -> str:
    """`cli/main.py` -> `timestone_cli.main`."""
    folder, *inner = module.with_suffix("").parts
    return ".".join([PACKAGES[folder], *(part for part in inner if part != "__init__")])


@cache
def tracked_files() -> tuple[Path, ...]:
    """Return every file that git tracks or would add, relative to ROOT, sorted."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    paths = (Path(name.decode()) for name in listed.stdout.split(b"\0") if name)
    return tuple(sorted(path for path in paths if (ROOT / path).is_file()))
