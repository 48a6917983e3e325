"""Fixtures and settings of every test: hypothesis, and an environment without accidental configuration."""

import gc
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.quick_directory import MEMORY
from tests.support.quick_java import QUICK_JAVA

# Container images often forbid bytecode files. Hundreds of child processes would then compile every module again, which
# is most of the processor time of a command.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The machine that runs the tests may be busy: time limits belong to pytest-timeout, not to single examples. Two runs
# are equal, as everywhere here (tests/support/seeds.py): new examples need an explicit request.
settings.register_profile(
    "timestone",
    deadline=None,
    derandomize="TIMESTONE_SEED" not in os.environ,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("timestone")

# A shell that starts the tests in the background makes them ignore Ctrl-C, and so would each command that a test starts
# and then interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


MEMORY_NEEDED = 4 << 30


def pytest_configure(config: pytest.Config) -> None:
    """Keep `tmp_path` in memory where there is room: thousands of short-lived stores need no real disk, and a disk that
    others use makes each of them wait. Tests of crashes and faults have theirs on the disk."""
    if hasattr(config, "workerinput") or config.option.basetemp is not None or not os.access(MEMORY, os.W_OK):
        return
    if shutil.disk_usage(MEMORY).free >= MEMORY_NEEDED:
        config.option.basetemp = folder = tempfile.mkdtemp(prefix="timestone-tests-", dir=MEMORY)
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


ONLY_NOTS = re.compile(r"not \w+( and not \w+)*")
FILE_MARKS = re.compile(r"^pytestmark = (\[.*?\]|.*?)$", re.MULTILINE | re.DOTALL)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a file whose mark excludes all its tests, or that has no test of a cluster where only these are wanted:
    importing it and making its tests takes every worker as long as running the quick ones."""
    wanted = config.option.markexpr
    if collection_path.suffix != ".py" or not (wanted == "cluster" or ONLY_NOTS.fullmatch(wanted)):
        return None
    text = collection_path.read_text(encoding="utf-8")
    if wanted == "cluster":
        return None if "mark.cluster" in text else True
    marks = FILE_MARKS.search(text)
    excluded = set(re.findall(r"not (\w+)", wanted))
    return True if marks and excluded & set(re.findall(r"mark\.(\w+)", marks[1])) else None


SPARK_LIMIT_S = 600
"""For everything that needs Java. With ten processes a processor, Java takes a minute to start and as long to become
fast, and the test that first needs the shared session waits for both."""


def starts_java(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ()) or item.get_closest_marker("spark") is not None


def may_run_again(item: pytest.Item) -> bool:
    """Return whether `make test` may run the test once more after a failure. On a busy machine a client may be too
    late; a record that is lost once is lost."""
    return not any(item.get_closest_marker(name) for name in ("crash", "faults")) and not any(
        room in item.path.parts for room in ("golden", "house")
    )


def join_group(item: pytest.Item, group: str) -> None:
    """Have the tests of a group run by one worker: the scheduler reads the group at the end of a test's id. xdist 3.8
    writes it there for a mark, but pytest 9.2 and later have the id elsewhere: without this, each test is alone."""
    item.add_marker(pytest.mark.xdist_group(group))
    if hasattr(item, "_id"):
        item._id = type(item._id).parse(f"{item.nodeid}@{group}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With parallel tests, keep those of a file together, all that share the one Spark session, and files that name a
    group of their own: they share a browser, and a server with its clients. What takes longest begins first: these,
    beside them those that start a separate Java, each by itself, then the files with slow tests. Thousands of quick
    ones at the end keep every worker busy until the last second."""
    for item in items:
        if not may_run_again(item):
            item.add_marker(pytest.mark.flaky(reruns=0))
        if not starts_java(item):
            continue
        item.add_marker(pytest.mark.spark)  # also where only a fixture starts it
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SPARK_LIMIT_S))
    if not hasattr(config, "workerinput"):
        return
    groups: dict[pytest.Item, str] = {}
    places: dict[str, int] = {}
    for item in items:
        group, place = item.nodeid.partition("::")[0], 3
        named = item.get_closest_marker("xdist_group")
        if named is not None:
            group, place = named.args[0], 0
        elif "spark" in getattr(item, "fixturenames", ()):
            group, place = "spark", 0
        elif starts_java(item):
            group, place = item.nodeid, 1
        elif any(item.get_closest_marker(name) for name in ("slow", "crash", "faults")):
            place = 2
        join_group(item, group)
        groups[item] = group
        places[group] = min(place, places.get(group, place))
    items.sort(key=lambda item: places[groups[item]])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    from tests.support.scheduling import GroupScheduling  # only where tests run side by side

    return GroupScheduling(config, log) if config.option.dist == "loadgroup" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show why tests were run once more: what fails in one run of a hundred is seen this once."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.write_sep("_", f"{report.nodeid}, before it was run again", yellow=True)
        terminalreporter.write_line(report.longreprtext)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Take modules and tests out of the garbage collector's work: with eight thousand tests, a full collection takes
    longer than most of them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def plain_environment() -> None:
    """Remove all settings of a server in the developer's shell. `TIMESTONE_PURE` stays: it selects the kernel under
    test, here and in child processes."""
    for name in [name for name in os.environ if name.startswith("TIMESTONE_")]:
        if name != "TIMESTONE_PURE":
            del os.environ[name]
    # Spark's launcher adds this to the options of every driver, of every test, page or program.
    os.environ["SPARK_SUBMIT_OPTS"] = QUICK_JAVA


@pytest.fixture(autouse=True)
def usual_log_levels() -> Iterator[None]:
    """Fail the test that leaves another log level behind, not the later ones that then miss a line."""
    loggers = [logging.getLogger(), logging.getLogger("timestone")]
    before = [logger.level for logger in loggers]
    yield
    after = [logger.level for logger in loggers]
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)
    assert after == before, "the test left another log level behind"
