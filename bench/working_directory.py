"""Where a benchmark writes."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import BenchmarkError
from .interruption import interruptible


@contextmanager
def working_directory(parent: Path) -> Iterator[Path]:
    """A directory of our own that is gone afterwards, whichever way this ends; SIGTERM ends it like Ctrl-C. Raises
    BenchmarkError when there is no `parent`."""
    if not parent.is_dir():
        raise BenchmarkError(f"{parent} is not a directory")
    with (
        interruptible(),
        tempfile.TemporaryDirectory(
            prefix="timestone-bench-", dir=parent, ignore_cleanup_errors=True
        ) as directory,
    ):
        yield Path(directory)
