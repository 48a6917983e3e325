import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.quick_directory import quick_directory
from tests.support.seeds import is_soak

__all__ = ["quick_directory"]


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """An empty folder on the disk, where a flush takes its time; that of other tests may be in memory."""
    with tempfile.TemporaryDirectory(prefix="timestone-crash-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Remove the time limits of a soak run: a test states its limit for its short settings, and the many crashes of a
    soak run take minutes on a busy machine."""
    for item in items:
        if is_soak():
            item.add_marker(pytest.mark.timeout(0), append=False)
        elif item.path.is_relative_to(Path(__file__).parent) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(600))
