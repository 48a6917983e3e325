"""A rewritten pair replaces a sealed one completely or not at all, and no reader notices."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import timestone
from tests.support.faulty_files import FaultyFiles, SimulatedKill
from tests.support.step_clock import StepClock
from tests.support.waiting import wait_for_seals
from timestone import LogConfig, StoreConfig
from timestone.disk.files import Files
from timestone.format import names
from timestone.index import TRAILER_BYTES, Trailer
from timestone.log import Log
from timestone.segment import Segment
from timestone.store import Store
from timestone.writing.segment_swap import SegmentSwap, remove_replaced

PAYLOADS = [b"zero", b"one", b"two", b"three", b"four"]


@pytest.fixture
def root(quick_directory: Path) -> Path:
    return quick_directory / "store"


def opened(root: Path, files: Files | None = None) -> Store:
    """A store whose first two segments are sealed, with two records each."""
    config = StoreConfig(
        ack="written",  # type: ignore[arg-type]
        min_free_bytes=0,
        delete_delay_ms=0,
        log=LogConfig(segment_entries=2),
    )
    store = Store(root, config, files=files, clock=StepClock())
    store.maintenance.stop()
    log = store.log("a")
    if not log.end_offset:
        for payload in PAYLOADS:
            log.append(payload)
        wait_for_seals(log)
    return store


def copied(files: Files, log: Log, segment: Segment) -> bool:
    """Replace a segment by a copy of itself."""
    trailer = segment.trailer
    assert trailer is not None
    replacement = SegmentSwap(files, log.folder, trailer)
    try:
        files.write_all(replacement.segment_fd, segment.segment_path.read_bytes(), 0)
        prepared = replacement.prepare(index_writer(files, segment, replacement.generation))
        return log.rewrites.replace(segment, replacement, prepared)
    finally:
        replacement.discard()


def index_writer(files: Files, segment: Segment, generation: int) -> Callable[[int], Trailer]:
    def write(fd: int) -> Trailer:
        assert segment.trailer is not None
        trailer = segment.trailer._replace(generation=generation)
        files.write_all(fd, segment.index_path.read_bytes()[:-TRAILER_BYTES] + trailer.encode(), 0)
        return trailer

    return write


def payloads(log: Log | timestone.LogView) -> list[bytes]:
    return [record.payload for record in log.reader("earliest")]


def segment_names(root: Path) -> list[str]:
    return sorted(path.name.lstrip("0") for path in (root / "a-0").iterdir() if path.suffix != "")


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    with opened(root) as store:
        yield store


def test_replaced_segment_serves_the_same_records(store: Store, root: Path) -> None:
    log = store.log("a")
    for generation in (1, 2):
        assert copied(store.files, log, log.segment_list.segments[0])
        store.deleted_files.unlink_due()
        assert payloads(log) == PAYLOADS
        assert log.segment_list.segments[0].segment_path == names.segment_path(log.folder, 0, generation)
    assert segment_names(root) == [".2.segment", ".index", "2.index", "2.segment", "4.index", "4.segment"]
    store.close()
    with opened(root) as again:
        assert again.recoveries == ()
        assert payloads(again.log("a")) == PAYLOADS


def test_reader_keeps_the_old_files_during_a_swap(store: Store) -> None:
    log = store.log("a")
    old = log.segment_list.segments[0]
    segment_list, pair = log.segment_list, old.pair()
    copied(store.files, log, old)
    store.deleted_files.unlink_due()
    assert not old.segment_path.exists()
    assert pair.read(0, 7) == b"zeroone"
    with pytest.raises(FileNotFoundError):
        segment_list.read(0, 5, max_records=1, max_bytes=1)  # it was released; the log knows what to do then
    assert log.record(0).payload == b"zero"


def test_view_refreshes_when_it_meets_a_swap(store: Store, root: Path) -> None:
    log = store.log("a")
    with timestone.view(root) as view:
        before = view.log("a")
        copied(store.files, log, log.segment_list.segments[0])
        assert payloads(before) == PAYLOADS, "the old segment file is still there, but its index is not"
        copied(store.files, log, log.segment_list.segments[1])
        store.deleted_files.unlink_due()
        assert payloads(before) == PAYLOADS
        before.refresh()
        known = before.segment_list.segments[:2]
        before.refresh()
        assert before.segment_list.segments[:2] == known, "what has not changed is not read again"


def test_view_ignores_a_new_file_before_the_index_names_it(store: Store, root: Path) -> None:
    with timestone.view(root) as view:
        log = view.log("a")
        known = log.segment_list.segments[0]
        names.segment_path(log.folder, 0, 1).write_bytes(b"half of a new gen")
        log.refresh()
        assert log.segment_list.segments[0] is known
        assert payloads(log) == PAYLOADS


def test_segment_deleted_during_a_swap_stays_deleted(store: Store) -> None:
    log = store.log("a")
    first = log.segment_list.segments[0]
    assert first.trailer is not None
    replacement = SegmentSwap(store.files, log.folder, first.trailer)
    prepared = replacement.prepare(index_writer(store.files, first, replacement.generation))
    log.configure(retention_bytes=1)
    assert log.apply_retention() == 2
    assert not log.rewrites.replace(first, replacement, prepared)
    replacement.discard()
    store.deleted_files.unlink_due()
    assert not list(log.folder.glob(f"{0:020d}.*"))


def test_forked_child_removes_no_file_of_its_parent(store: Store) -> None:
    """A child has a copy of what its parent was making, and would unlink at its end what counts since."""
    log = store.log("a")
    first = log.segment_list.segments[0]
    assert first.trailer is not None
    replacement = SegmentSwap(store.files, log.folder, first.trailer)
    store.files.write_all(replacement.segment_fd, first.segment_path.read_bytes(), 0)
    prepared = replacement.prepare(index_writer(store.files, first, replacement.generation))
    pid = os.fork()
    if pid == 0:
        replacement.discard()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert log.rewrites.replace(first, replacement, prepared)
    assert payloads(log) == PAYLOADS


def test_deletion_removes_every_generation(store: Store, root: Path) -> None:
    log = store.log("a")
    copied(store.files, log, log.segment_list.segments[0])
    log.configure(retention_bytes=1)
    assert log.apply_retention() == 2
    store.deleted_files.unlink_due()
    assert segment_names(root) == ["4.index", "4.segment"]


def test_swap_killed_at_any_operation_leaves_the_old_pair_or_the_new_one(quick_directory: Path) -> None:
    number, done, outcomes = 0, False, set()
    while not done:
        number += 1
        root, files = quick_directory / f"killed {number}", FaultyFiles()
        store = opened(root, files)
        log = store.log("a")
        files.kill(number)
        try:
            copied(files, log, log.segment_list.segments[0])
            store.deleted_files.unlink_due()
        except SimulatedKill:
            pass
        done = not files.dead
        files.abandon()
        store.abandon()
        store.documents.close()
        with timestone.view(root) as view:
            assert payloads(view.log("a")) == PAYLOADS
        with opened(root) as again:
            assert payloads(again.log("a")) == PAYLOADS
            trailer = again.log("a").segment_list.segments[0].trailer
            assert trailer is not None
            outcomes.add(trailer.generation)
        own = f"{'.1' if trailer.generation else ''}.segment"
        assert [name for name in segment_names(root) if name.startswith(".")] == sorted([own, ".index"])
    assert outcomes == {0, 1}
    assert number > 8


@pytest.mark.parametrize("operation", ["create", "pwrite", "fdatasync", "rename", "sync_directory"])
def test_swap_refused_by_the_disk_leaves_no_files(root: Path, operation: str) -> None:
    files = FaultyFiles()
    with opened(root, files) as store:
        log = store.log("a")
        fault = files.fail(operation, errno.ENOSPC)
        with pytest.raises(OSError):
            copied(files, log, log.segment_list.segments[0])
        assert fault.hits == 1
        assert segment_names(root) == [".index", ".segment", "2.index", "2.segment", "4.index", "4.segment"]
        assert payloads(log) == PAYLOADS
        assert copied(files, log, log.segment_list.segments[0]), "the next try is like the first"


def test_old_file_is_kept_while_a_power_loss_could_restore_its_index(root: Path) -> None:
    files = FaultyFiles()
    with opened(root, files) as store:
        log = store.log("a")
        files.fail("sync_directory", nth=2)
        assert copied(files, log, log.segment_list.segments[0])
        store.deleted_files.unlink_due()
        assert ".segment" in segment_names(root)
        assert payloads(log) == PAYLOADS
    files.calls.clear()
    with opened(root, files):
        assert ".segment" not in segment_names(root)
    calls = [operation for operation, _ in files.calls if operation in ("sync_directory", "unlink")]
    assert calls[:2] == ["sync_directory", "unlink"], "first the rename is durable, then the file goes"


def test_only_files_that_no_index_names_are_removed(store: Store, root: Path) -> None:
    log = store.log("a")
    for base, generation in ((0, 1), (0, 7), (2, 1), (4, 3)):
        names.segment_path(log.folder, base, generation).write_bytes(b"x")
    sealed = [segment.trailer for segment in log.segment_list.segments if segment.trailer]
    assert remove_replaced(store.files, log.folder, sealed) == 3
    assert segment_names(root) == [
        ".index",
        ".segment",
        "2.index",
        "2.segment",
        "4.3.segment",
        "4.index",
        "4.segment",
    ]
    assert remove_replaced(store.files, log.folder, sealed) == 0
    names.segment_path(log.folder, 4, 3).unlink()


def test_damaged_trailer_of_a_rewritten_segment_is_rebuilt(store: Store, root: Path) -> None:
    log = store.log("a")
    copied(store.files, log, log.segment_list.segments[0])
    store.close()
    index = names.index_path(log.folder, 0)
    content = bytearray(index.read_bytes())
    content[-60] ^= 1
    index.write_bytes(content)
    for _ in range(2):
        with opened(root) as again:
            assert payloads(again.log("a")) == PAYLOADS
            trailer = again.log("a").segment_list.segments[0].trailer
            assert trailer is not None
            assert (trailer.generation, trailer.recovered) == (1, True)
