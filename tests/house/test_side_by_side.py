"""`make test` runs tests side by side, those of a file by one worker: they share what is slow to start."""

import re
import subprocess
import sys
from collections import defaultdict

import pytest

from tests.house.tree import ROOT

FILES = (
    "tests/timestone/test_filters.py",
    "tests/timestone/test_address.py",
    "tests/timestone/test_record.py",
)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_tests_of_a_file_are_run_by_one_worker() -> None:
    words = ("-v", "-p", "no:cacheprovider", "--numprocesses", "2", "--dist", "loadgroup")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "--no-loadscope-reorder", *FILES],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
    )
    workers = defaultdict(set)
    for worker, path in re.findall(r"^\[(gw\d)\].* (tests/\S+?)::", done.stdout, re.MULTILINE):
        workers[path].add(worker)
    assert workers.keys() == set(FILES), done.stdout
    assert {path: len(found) for path, found in workers.items()} == dict.fromkeys(FILES, 1), done.stdout
