"""What holds for every test: settings of hypothesis, and an environment that configures nothing by accident."""

import os

import pytest
from hypothesis import HealthCheck, settings

# The machine that runs the tests may be busy: time limits belong to pytest-timeout, not to single examples.
settings.register_profile(
    "timestone", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("timestone")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where tests run side by side, those of a file stay together, and all with Spark share one Java, which begins
    first because it takes longest."""
    if not hasattr(config, "workerinput"):
        return
    for item in items:
        group = "spark" if item.get_closest_marker("spark") else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


@pytest.fixture(autouse=True, scope="session")
def plain_environment() -> None:
    """No setting of a server in the developer's shell reaches a test or a process that a test starts.

    `TIMESTONE_PURE` stays: it chooses what is tested, here and in those processes.
    """
    for name in [name for name in os.environ if name.startswith("TIMESTONE_")]:
        if name != "TIMESTONE_PURE":
            del os.environ[name]
