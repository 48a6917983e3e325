"""The directory that a benchmark writes to."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import BenchmarkError
from .interruption import interruptible


@contextmanager
def working_directory(parent: Path) -> Iterator[Path]:
    """Yield a new directory that is deleted afterwards, however the benchmark ends; SIGTERM ends it like Ctrl-C. Raises
    BenchmarkError if `parent` does not exist."""
    if not parent.is_dir():
        raise BenchmarkError(f"{parent} is not a directory")
    with (
        interruptible(),
        tempfile.TemporaryDirectory(
            prefix="timestone-bench-", dir=parent, ignore_cleanup_errors=True
        ) as directory,
    ):
        yield Path(directory)
