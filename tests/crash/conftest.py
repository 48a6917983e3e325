import pytest

from tests.support.quick_directory import quick_directory
from tests.support.seeds import is_soak

__all__ = ["quick_directory"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A soak run takes as long as it takes, whatever a test says about its short settings."""
    if is_soak():
        for item in items:
            item.add_marker(pytest.mark.timeout(0), append=False)
