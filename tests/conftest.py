"""What holds for every test: settings of hypothesis, and an environment that configures nothing by accident."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.support.quick_java import QUICK_JAVA

# The machine that runs the tests may be busy: time limits belong to pytest-timeout, not to single examples. Two runs do
# the same, as everywhere here (tests/support/seeds.py): what is new is for those who look for it.
settings.register_profile(
    "timestone",
    deadline=None,
    derandomize="TIMESTONE_SEED" not in os.environ,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("timestone")

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would each command that a test starts
# and then interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


SPARK_LIMIT_S = 600
"""For whatever needs Java. With ten processes a processor that takes a minute to start and as long to become quick, and
whoever is the first to need the one session waits for both."""


def starts_java(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ()) or item.get_closest_marker("spark") is not None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where tests run side by side, those of a file stay together, and all that share the one Spark session. They begin
    first because they take longest; beside them go those that start a Java of their own, each by itself."""
    for item in items:
        if starts_java(item) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SPARK_LIMIT_S))
    if not hasattr(config, "workerinput"):
        return
    places: dict[str, int] = {}
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            group, place = "spark", 0
        elif starts_java(item):
            group, place = item.nodeid, 1
        else:
            group, place = item.nodeid.partition("::")[0], 2
        item.add_marker(pytest.mark.xdist_group(group))
        places[item.nodeid] = place
    items.sort(key=lambda item: places[item.nodeid])


@pytest.fixture(autouse=True, scope="session")
def plain_environment() -> None:
    """No setting of a server in the developer's shell reaches a test or a process that a test starts.

    `TIMESTONE_PURE` stays: it chooses what is tested, here and in those processes.
    """
    for name in [name for name in os.environ if name.startswith("TIMESTONE_")]:
        if name != "TIMESTONE_PURE":
            del os.environ[name]
    # What Spark's launcher adds to the options of every driver, whichever test, page or program starts it.
    os.environ["SPARK_SUBMIT_OPTS"] = QUICK_JAVA
