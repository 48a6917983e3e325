"""kill -9 of a driver with its Spark, in the first batch and in a later one, while a server appends; of a
worker, of the process that answers for a stream, and of the server."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import timestone
from tests.support.dying_source import MARK, DyingSource
from tests.support.spark import Batches, offsets, stream
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


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def kill_in_batch(number: int, *directories: Path) -> None:
    """Run the query, kill the driver in a batch, and see its Java end by itself."""
    with program("tests.support.stream_program", *directories, number) as driver:
        java, python = (int(word) for word in said(driver, "java"))
        java_end = os.pidfd_open(java)
        try:
            said(driver, "holding")
            os.kill(python, signal.SIGKILL)
            ended, _, _ = select.select([java_end], [], [], 200)
            assert ended, "Java outlived the program that started it"
        finally:
            os.close(java_end)


def test_a_killed_query_reads_each_record_once_from_where_it_first_began(
    spark: SparkSession, tmp_path: Path
) -> None:
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
        assert writer.wait(120) == 0

    Batches(out).drain(stream(spark, store, startingOffsets="latest"), checkpoint)
    after = Batches(out).all()
    assert after[: len(interrupted)] == interrupted
    with timestone.view(store) as view:
        assert Batches(out).offsets() == list(range(begin, view.log(LOG).end_offset))


def test_a_killed_worker_costs_a_try_and_no_row(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "data", 2500)
    spark.dataSource.register(DyingSource)
    frame = spark.read.format("timestone-dying").load(str(tmp_path / "data"))
    assert offsets(frame) == list(range(2500))
    assert (tmp_path / "data" / MARK).exists()


def test_a_killed_source_process_ends_the_query_which_goes_on_where_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    store, sink = tmp_path / "data", Batches(tmp_path / "out")
    fill(store, 2500)
    spark.dataSource.register(DyingSource)

    def drain() -> None:
        frame = stream(spark, store, source="timestone-dying", maxOffsetsPerTrigger=1000)
        sink.drain(frame, tmp_path / "checkpoint")

    with pytest.raises(StreamingQueryException):
        drain()
    assert sink.sizes() == [1000]
    drain()
    assert sorted(sink.offsets()) == list(range(2500))


def test_a_server_that_is_killed_and_comes_again_is_read_on(spark: SparkSession, tmp_path: Path) -> None:
    store, sink = tmp_path / "data", Batches(tmp_path / "out")
    with program("tests.support.writer", store) as writer:
        said(writer, "appending")
        query = sink.start(stream(spark, store), tmp_path / "checkpoint")
        # Records keep coming, so there is no last one to wait for.
        until(lambda: bool(sink.offsets()))
        writer.kill()
        writer.wait(60)
    query.processAllAvailable()
    before = len(sink.offsets())
    with program("tests.support.writer", store, before + 500) as writer:
        said(writer, "appended")
        query.processAllAvailable()
    query.stop()
    assert before > 0
    with timestone.view(store) as view:
        assert sorted(sink.offsets()) == list(range(view.log(LOG).end_offset))
