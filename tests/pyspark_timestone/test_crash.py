"""kill -9 of a driver with its Spark, in the first batch and in a later one, while a server goes on appending."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import timestone
from tests.support.spark import Batches
from tests.support.stores import LOG, fill

pytestmark = [pytest.mark.spark, pytest.mark.crash]


@contextmanager
def program(*words: object) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", *[str(word) for word in words]]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        try:
            yield started
        finally:
            started.kill()


def said(started: "subprocess.Popen[str]", word: str) -> list[str]:
    """Wait for the line that begins with `word`; returns the rest of its words."""
    assert started.stdout is not None
    for line in started.stdout:
        if line.split()[:1] == [word]:
            return line.split()[1:]
    raise AssertionError(f"the program ended before it said {word!r}")


def kill_in_batch(number: int, *directories: Path) -> None:
    """Run the query, kill the driver in a batch, and see its Java end by itself."""
    with program("tests.support.stream_program", *directories, number) as driver:
        java, python = (int(word) for word in said(driver, "java"))
        java_end = os.pidfd_open(java)
        try:
            said(driver, "holding")
            os.kill(python, signal.SIGKILL)
            ended, _, _ = select.select([java_end], [], [], 60)
            assert ended, "Java outlived the program that started it"
        finally:
            os.close(java_end)


@pytest.mark.timeout(300)
def test_a_killed_query_reads_each_record_once_from_where_it_first_began(tmp_path: Path) -> None:
    store, checkpoint, out = tmp_path / "data", tmp_path / "checkpoint", tmp_path / "out"
    directories = (store, checkpoint, out)
    fill(store, 1000)
    with program("tests.support.writer", store) as writer:
        said(writer, "appending")
        kill_in_batch(0, *directories)
        first: Any = json.loads((checkpoint / "offsets" / "0").read_text().splitlines()[-1])
        begin, end = first["#"]["since"][LOG]["0"], first[LOG]["0"]
        assert 1000 <= begin < end
        before = Batches(out).all()
        assert [offset for _, _, offset in before[0]] == list(range(begin, end))

        kill_in_batch(3, *directories)
        interrupted = Batches(out).all()
        assert interrupted[0] == before[0]

        assert writer.stdin is not None
        writer.stdin.close()
        assert writer.wait(60) == 0

    with program("tests.support.stream_program", *directories) as last:
        assert last.wait(200) == 0
    after = Batches(out).all()
    assert after[: len(interrupted)] == interrupted
    with timestone.view(store) as view:
        assert Batches(out).offsets() == list(range(begin, view.log(LOG).end_offset))
