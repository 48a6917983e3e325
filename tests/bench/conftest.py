import pytest

from tests.support.quick_directory import quick_directory

__all__ = ["quick_directory"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A benchmark takes SIGALRM for itself, which raises KeyboardInterrupt: a limit of time that came as that signal
    would end all tests, not the one that hangs, and one that came later would never come."""
    for item in items:
        if item.path.is_relative_to(__file__.removesuffix("conftest.py")):
            item.add_marker(pytest.mark.timeout(method="thread"))
