"""Flushes of replicas beside an event loop."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.timestone.replication.replicas import replicated
from timestone.config import Ack
from timestone.disk.files import Files
from timestone.errors import LogFailed
from timestone.kernel import loops
from timestone.replication.replicated_log import ReplicatedLog
from timestone.writing.write_batch import WriteBatch
from timestone_cluster.shard.flushes import Flushes


def written(log: ReplicatedLog, payload: bytes) -> None:
    log.submit(WriteBatch([payload], log.topic_id("t")), ack=Ack.SYNCED)


async def flushed(flushes: Flushes, log: ReplicatedLog) -> int | Exception:
    outcome: asyncio.Future[int | Exception] = asyncio.get_running_loop().create_future()
    flushes.begin(log, outcome.set_result)
    return await asyncio.wait_for(outcome, 20)


def test_log_is_durable_when_the_loop_hears_of_it(tmp_path: Path) -> None:
    async def run(log: ReplicatedLog) -> None:
        flushes = Flushes()
        for number in range(1, 6):  # the first one with the name of the topic, in a thread of Python
            written(log, b"%d" % number)
            assert await flushed(flushes, log) == log.synced_offset == number
        flushes.close()

    with replicated(tmp_path) as log:
        log.lead(1)
        asyncio.run(run(log))


def test_cut_does_not_wait_for_the_loop_that_makes_it(tmp_path: Path) -> None:
    async def run(log: ReplicatedLog) -> None:
        flushes, outcomes = Flushes(), list[int | Exception]()
        written(log, b"kept")
        await flushed(flushes, log)
        written(log, b"gone")
        flushes.begin(log, outcomes.append)
        log.follow()
        log.cut(1, 1)
        while not outcomes:
            await asyncio.sleep(0.001)
        assert outcomes == [1]
        flushes.close()

    with replicated(tmp_path) as log:
        log.lead(1)
        asyncio.run(asyncio.wait_for(run(log), 20))


@pytest.mark.parametrize("again", ["works", "fails, too"])
def test_failed_flush_is_followed_by_a_rewrite_or_the_end_of_the_log(
    tmp_path: Path, again: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise OSError(5, "Input/output error")

    def begin(files: Files, one: int, other: int, wake_fd: int) -> loops.Flush:
        pipe = os.pipe()
        flush = loops.Flush(pipe[0], other, wake_fd)
        flush.wait()
        for fd in pipe:
            os.close(fd)
        return flush

    async def run(log: ReplicatedLog) -> int | Exception:
        flushes = Flushes()
        written(log, b"first")
        await flushed(flushes, log)
        written(log, b"second")
        with monkeypatch.context() as patch:
            patch.setattr(Files, "begin_flush", begin)
            if again != "works":
                patch.setattr(Files, "fdatasync", failing)
                patch.setattr(Files, "fdatasync_both", failing)
            outcome = await flushed(flushes, log)
        flushes.close()
        return outcome

    with replicated(tmp_path) as log:
        log.lead(1)
        outcome = asyncio.run(run(log))
        if again == "works":
            assert outcome == log.synced_offset == 2
        else:
            assert isinstance(outcome, LogFailed)


def test_close_waits_for_what_would_write_to_its_descriptor(tmp_path: Path) -> None:
    async def run(log: ReplicatedLog) -> None:
        flushes = Flushes()
        written(log, b"first")
        await flushed(flushes, log)
        written(log, b"second")
        flushes.begin(log, lambda outcome: None)
        flushes.close()
        assert log.sync() == 2

    with replicated(tmp_path) as log:
        log.lead(1)
        asyncio.run(run(log))
