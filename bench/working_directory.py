"""Where a benchmark writes."""

import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from .errors import BenchmarkError


@contextmanager
def working_directory(parent: Path) -> Iterator[Path]:
    """A directory of our own that is gone afterwards, whichever way this ends; SIGTERM ends it like Ctrl-C. Raises
    BenchmarkError when there is no `parent`."""

    def interrupted(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if not parent.is_dir():
        raise BenchmarkError(f"{parent} is not a directory")
    previous = signal.signal(signal.SIGTERM, interrupted)
    try:
        with tempfile.TemporaryDirectory(
            prefix="timestone-bench-", dir=parent, ignore_cleanup_errors=True
        ) as directory:
            yield Path(directory)
    finally:
        signal.signal(signal.SIGTERM, previous)
