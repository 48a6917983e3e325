from pathlib import Path

import pytest

from tests.support.quick_directory import quick_directory

__all__ = ["quick_directory"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A benchmark takes SIGALRM for itself, which raises KeyboardInterrupt: a limit of time that came as that signal
    would end all tests, not the one that hangs, and one that came later would never come. The limit is for what hangs:
    what measures with a processor of its own for ten seconds, takes minutes where all of them are taken."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(600, method="thread"))
