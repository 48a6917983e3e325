"""Compression of a segment, stopped at any moment by a kill or a power loss, and read at the same time: every record is
kept once, and the next open removes all unused files."""

import contextlib
import os
import random
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import timestone
from tests.support.compressed import expected, fill, forget_tail, open_compressed, payload_of, read_all
from tests.support.faulty_files import FaultyFiles, SimulatedKill
from tests.support.power_loss import Disk, Image, Loss, images
from tests.support.recording_files import RecordingFiles
from tests.support.seeds import rounds, run_seed, told_on_failure
from tests.support.waiting import wait_for
from timestone import LogConfig, OffsetOutOfRange
from timestone.compressed.dictionaries import write_dictionary
from timestone.compressed.zstd import train
from timestone.disk.files import Files
from timestone.format.folder_listing import base_offsets
from timestone.store import Store

pytestmark = pytest.mark.crash

IMAGES = rounds(2, "TIMESTONE_POWER_LOSS_IMAGES")
ROUNDS = rounds(5, "TIMESTONE_CRASH_ROUNDS")
SECONDS = rounds(2, "TIMESTONE_READERS_SECONDS")
NESTED_EVERY = rounds(101, "TIMESTONE_POWER_LOSS_NESTED_EVERY")
COUNT = 21


def run(store: Store) -> None:
    """Make two sealed segments, compress them, and make a dictionary for them before."""
    log = store.log("a")
    like = b'{"device":"sensor-%d","temperature":%d.5,"state":"running","at":%d}'
    content = train([like % (n % 13, n % 41, n) for n in range(2000)], 1024, 1)
    assert content is not None
    write_dictionary(store.files, log.folder, log.id, 1, content)
    log.configure(compression_dictionary=True)
    log.apply_compression()
    store.deleted_files.unlink_due()


def prepared(root: Path) -> None:
    with open_compressed(root, segment_entries=10, compression="none") as store:
        fill(store.log("a"), COUNT)


def begun(root: Path, files: Files) -> Store:
    store = open_compressed(root, files)
    store.log("a").configure(compression="zstd")
    return store


def check(root: Path, count: int, beside: tuple[str, ...] = (".dictionary",)) -> set[int]:
    """Open the remaining files; return the generations served. beside: suffixes of files that may remain."""
    with timestone.view(root) as view:
        found = read_all(view.log("a"))
        assert found == expected(0, len(found))
        assert len(found) >= count
    with open_compressed(root) as store:
        log = store.log("a")
        forget_tail(store)
        found = read_all(log)
        assert found == expected(0, len(found))
        assert len(found) >= count
        segments = log.segment_list.segments
        trailers = [segment.trailer for segment in segments if segment.trailer]
        meant = {path.name for one in segments for path in (one.segment_path, one.index_path)}
        present = {path.name for path in log.folder.iterdir()}
        assert {name for name in present - meant if not name.endswith(beside)} == {"topics"}
        assert base_offsets(Files(), log.folder)[1] == []
        return {one.generation for one in trailers}


def check_interrupted(root: Path, left: Image, rng: random.Random) -> None:
    """Interrupt the open that removes unused files after each of its operations."""
    shutil.rmtree(root)
    left.write(root)
    recorder = RecordingFiles(root)
    open_compressed(root, recorder).close()
    disk = Disk(recorder)
    for number, operation in enumerate(recorder.operations):
        disk.apply(number, operation)
        shutil.rmtree(root)
        with told_on_failure(recovery_moment=number, recovery_operation=operation):
            disk.image(rng, list(Loss)[number % len(Loss)]).write(root)
            check(root, COUNT)


@pytest.mark.timeout(600)
def test_compression_is_consistent_when_the_power_fails_at_any_operation(quick_directory: Path) -> None:
    source = quick_directory / "run" / "store"
    source.parent.mkdir()
    prepared(source)
    recorder = RecordingFiles(source)
    store = begun(source, recorder)
    run(store)
    store.close()
    seed, checked, outcomes = run_seed("compression"), 0, set()
    disk, root = Disk(recorder), quick_directory / "image"
    for number, operation in enumerate(recorder.operations):
        disk.apply(number, operation)
        for loss, rng, left in images(disk, seed, number, IMAGES):
            with told_on_failure(TIMESTONE_SEED=seed, moment=number, loss=loss.name, operation=operation):
                left.write(root)
                outcomes |= check(root, COUNT)
                if checked % NESTED_EVERY == 0:
                    check_interrupted(root, left, rng)
            shutil.rmtree(root)
            checked += 1
    assert outcomes == {0, 1}
    print(f"{checked} images of {len(recorder.operations)} operations, seed {seed}")


def test_compression_is_consistent_when_killed_at_each_operation(quick_directory: Path) -> None:
    number, done, outcomes = 0, False, set()
    while not done:
        number += 1
        root, files = quick_directory / f"killed {number}", FaultyFiles()
        prepared(root)
        store = begun(root, files)
        files.kill(number, ("before", "middle")[number % 2])
        with contextlib.suppress(SimulatedKill):
            run(store)
        done = not files.dead
        files.abandon()
        store.abandon()
        store.documents.close()
        with told_on_failure(operation=number):
            outcomes |= check(root, COUNT)
        shutil.rmtree(root)
    assert outcomes == {0, 1}
    assert number > 20


def follow(root: Path, pipe: int) -> None:
    """Read forward continuously, from the start again at each end; report how many records were read."""
    with timestone.view(root) as view:
        log, offset, total = view.log("a"), 0, 0
        while True:
            try:
                batch = log.read(offset, max_records=1 + total % 700)
            except OffsetOutOfRange as error:
                if error.start <= offset:
                    raise  # nothing was deleted before it
                offset = error.start
                continue
            for record in batch:
                assert record.offset == offset, f"{record.offset} where {offset} should be"
                assert record.payload == payload_of(offset), f"offset {offset} is torn"
                offset += 1
            assert batch.next_offset == offset
            total += len(batch)
            os.write(pipe, len(batch).to_bytes(4, "little"))
            if not batch:
                view.open_segments.clear()  # as if many others had been read in between
                log.refresh()
                offset = log.start_offset


def forked_reader(root: Path) -> tuple[int, int]:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            follow(root, writer)
        except BaseException as error:
            print(f"reader: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(1)
    os.close(writer)
    return pid, reader


@pytest.fixture
def readers(quick_directory: Path) -> Iterator[list[tuple[int, int]]]:
    root = quick_directory / "store"
    prepared(root)
    started = [forked_reader(root) for _ in range(2)]
    try:
        yield started
    finally:
        for pid, pipe in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.close(pipe)


def heard(pipes: list[int]) -> set[int]:
    """Return the pipes on which a reader has reported; reading a report makes room for more."""
    return {pipe for pipe in select.select(pipes, [], [], 0)[0] if os.read(pipe, 1 << 16)}


def test_readers_in_other_processes_see_no_difference(
    quick_directory: Path, readers: list[tuple[int, int]]
) -> None:
    """During appends, seals, compression, and deletion with almost no delay."""
    with open_compressed(quick_directory / "store") as store:
        log = store.log("a")
        log.configure(compression="zstd", segment_entries=50, retention_bytes=100_000)
        swapped, deleted, until = 0, 0, time.monotonic() + SECONDS
        silent = {pipe for _, pipe in readers}
        # A slow machine takes longer to do enough while both read.
        while time.monotonic() < until or swapped <= 20 or deleted <= 5 or silent:
            fill(log, 200, batch=20)
            swapped += log.apply_compression()
            store.deleted_files.unlink_due()
            deleted += log.apply_retention()
            silent -= heard([pipe for _, pipe in readers])
            for pid, _ in readers:
                assert os.waitpid(pid, os.WNOHANG) == (0, 0), "a reader has met something; see standard error"


def append_for_ever(root: Path, pipe: int) -> None:
    """Append while the background seals and compresses as fast as possible; report the written end after each batch."""
    config = LogConfig(segment_entries=50, compression="zstd", compression_dictionary=True)  # type: ignore[arg-type]
    with timestone.open(root, ack="written", min_free_bytes=0, delete_delay_ms=0, log=config) as store:
        log = store.log("a")
        while True:
            offsets = range(log.end_offset, log.end_offset + 20)
            log.append_many([payload_of(offset) for offset in offsets])
            os.write(pipe, log.end_offset.to_bytes(8, "little"))
            time.sleep(0.002)


def compressed_count(root: Path) -> int:
    """Return the number of compressed segments, as another process sees it."""
    with timestone.view(root) as view:
        trailers = [segment.trailer for segment in view.log("a").segment_list.segments]
    return sum(1 for one in trailers if one and one.frames)


@pytest.mark.timeout(0)
def test_compression_is_consistent_when_killed_at_random_moments(quick_directory: Path) -> None:
    seed, root, end = run_seed("compression kill -9"), quick_directory / "store", 0
    rng = random.Random(seed)
    for number in range(ROUNDS):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(reader)
                append_for_ever(root, writer)
            finally:
                os._exit(1)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe, told_on_failure(TIMESTONE_SEED=seed, round=number):
            said = pipe.read(8)
            time.sleep(rng.uniform(0.05, 0.4))
            if number == ROUNDS - 1:  # on a slow machine, none may be compressed yet
                wait_for(lambda: compressed_count(root))
            os.kill(pid, signal.SIGKILL)
            said += pipe.read()
            assert os.waitpid(pid, 0)[1] == signal.SIGKILL
            told = int.from_bytes(said[len(said) // 8 * 8 - 8 :][:8], "little")
            assert told > end
            with timestone.view(root) as view:
                found = read_all(view.log("a"))
            assert found == expected(0, len(found))
            assert len(found) >= told
            end = len(found)
    assert compressed_count(root) > 0
    check(root, end, beside=(".dictionary", ".lost"))  # killed during an append
