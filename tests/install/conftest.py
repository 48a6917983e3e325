"""What the tests of an installed package share."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def no_source_tree_on_the_module_path() -> Iterator[None]:
    """Take PYTHONPATH away: a Spark session that an earlier test of this process made leaves the source tree there,
    and pip takes the tree for an installed Timestone and installs nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)
        yield
