"""kill -9 while readers commit: committed offsets are kept, and readers committed together are consistent.

TIMESTONE_CRASH_ROUNDS=1000 TIMESTONE_SEED=random pytest tests/crash/test_reader_commits.py
"""

import os
import random
import signal
import struct
import time
from pathlib import Path

import pytest

import timestone
from tests.support.seeds import rounds, run_seed, told_on_failure
from timestone import ReaderId

pytestmark = pytest.mark.crash

ROUNDS = rounds(15, "TIMESTONE_CRASH_ROUNDS")
READERS = (ReaderId("a", 0, "billing"), ReaderId("a", 0, "audit"), ReaderId("b", 0, "billing"))
_COMMITTED = struct.Struct("<Q")


def commit_for_ever(root: Path, pipe: int) -> None:
    store = timestone.open(root, ack="written", min_free_bytes=0)
    logs = [store.log("a"), store.log("b")]
    number = max((found.offset for found in store.readers().values()), default=0)
    while True:
        number += 1
        for log in logs:
            while log.end_offset < number:
                log.append(b"x")
        store.commit_readers(dict.fromkeys(READERS, number))
        os.write(pipe, _COMMITTED.pack(number))


def killed_after(root: Path, seconds: float) -> int:
    """Run a process that commits, kill it some time after its first commit; return the last offset that it reported."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            commit_for_ever(root, writer)
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        first = pipe.read(_COMMITTED.size)
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
        told = first + pipe.read()
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    whole = told[: len(told) // _COMMITTED.size * _COMMITTED.size]
    return max(int(number) for (number,) in _COMMITTED.iter_unpack(whole))


@pytest.mark.timeout(0)
def test_commits_of_many_readers_are_atomic_and_durable(quick_directory: Path) -> None:
    seed = run_seed("reader commits")
    rng = random.Random(seed)
    root = quick_directory / "store"
    for number in range(ROUNDS):
        with told_on_failure(TIMESTONE_SEED=seed, round=number):
            told = killed_after(root, rng.uniform(0.0, 0.05))
            if number % 2:  # else the next process meets SQLite's journal, and rolls it back
                with timestone.view(root) as view:
                    check(told, [found.offset for found in view.readers().values()])
            with timestone.open(root, min_free_bytes=0) as store:
                check(told, [found.offset for found in store.readers().values()])


def check(told: int, found: list[int]) -> None:
    assert len(found) == len(READERS)
    assert len(set(found)) == 1, "committed together, so there together"
    assert found[0] >= told
