"""A failed fsync: the records concerned are rewritten elsewhere, or their offsets are named."""

import errno
from pathlib import Path

import pytest

import timestone
from tests.support.faulty_files import FaultyFiles
from tests.support.waiting import wait_for
from timestone import LogFailed
from timestone.disk.files import Data, Files
from timestone.repair.inspection import EXIT_CLEAN, inspect_store


def opened(path: Path) -> tuple[timestone.Store, FaultyFiles]:
    files = FaultyFiles()
    store = timestone.open(path, files=files, ack="written")
    return store, files


def payloads(log: timestone.Log | timestone.LogView) -> list[bytes]:
    return [record.payload for record in log.reader()]


@pytest.mark.parametrize("path", [".segment", ".index"])
def test_unsynced_records_survive_a_failed_flush_in_a_new_segment(tmp_path: Path, path: str) -> None:
    store, files = opened(tmp_path / "data")
    log = store.log("a")
    log.append_many([b"1", b"2"], topic="t", ack="synced")
    log.append(b"3")
    files.fail("fdatasync", errno.EIO, path=path)
    assert log.append(b"4", ack="synced") == 3
    assert log.synced_offset == 4
    assert [base for base, _ in log.segment_bounds()] == [0, 2]
    assert payloads(log) == [b"1", b"2", b"3", b"4"]
    view = timestone.view(tmp_path / "data").log("a")
    assert payloads(view) == [b"1", b"2", b"3", b"4"]
    assert view.epoch == log.epoch == 1
    wait_for(lambda: [segment.end_offset for segment in log.segment_list.sealed()] == [2])
    assert payloads(view) == [b"1", b"2", b"3", b"4"]
    log.append(b"5")
    store.close()
    with timestone.open(tmp_path / "data", recovery="strict") as again:
        assert payloads(again.log("a")) == [b"1", b"2", b"3", b"4", b"5"]
        assert again.log("a").append(b"6") == 5


def test_topic_names_are_durable_before_the_records_are_rewritten(tmp_path: Path) -> None:
    """A write that could not be taken back made records durable whose topics were not."""
    files = FaultyFiles()
    with timestone.open(tmp_path / "data", files=files, ack="written", sync_interval_ms=10**6) as store:
        log = store.log("a")
        log.append(b"1", topic="t")
        for _ in "the write", "what would take it back":
            files.fail("pwrite", errno.EIO, path=".index")
        before = len(files.calls)
        log.append(b"2")
        assert (log.epoch, log.synced_offset) == (1, 1)
        operations = [(operation, Path(path).suffix or Path(path).name) for operation, path in files.calls]
        named = operations.index(("fdatasync", "topics"), before)
        assert named < operations.index(("rename", ".segment"), before)


class InterruptedFiles(Files):
    """The next write is interrupted once it has happened, when told so."""

    interrupts = False

    def pwrite(self, fd: int, data: Data, position: int) -> int:
        written = super().pwrite(fd, data, position)
        if self.interrupts:
            self.interrupts = False
            raise KeyboardInterrupt
        return written


@pytest.mark.parametrize("unsynced", [0, 4])
def test_segment_cut_by_an_interrupted_append_is_sealed(tmp_path: Path, unsynced: int) -> None:
    """It stayed unsealed: nothing behind it was deleted or compressed, and strict recovery refused a store that was
    closed."""
    files = InterruptedFiles()
    with timestone.open(tmp_path / "data", files=files, ack="written", sync_interval_ms=10**6) as store:
        log = store.log("a")
        log.append_many([b"durable"] * 5, ack="synced")
        log.append_many([b"written"] * unsynced)
        files.interrupts = True
        with pytest.raises(KeyboardInterrupt):
            log.append_many([b"interrupted"] * 3)
        wait_for(lambda: [segment.end_offset for segment in log.segment_list.sealed()] == [5])
        log.append(b"later")
    kept = [b"durable"] * 5 + [b"written"] * unsynced + [b"later"]
    with timestone.open(tmp_path / "data", recovery="strict") as store:
        assert payloads(store.log("a")) == kept
        assert store.recoveries == ()
    assert inspect_store(tmp_path / "data", deep=True).exit_code == EXIT_CLEAN


def test_failed_first_flush_moves_the_whole_segment(tmp_path: Path) -> None:
    store, files = opened(tmp_path / "data")
    log = store.log("a")
    log.append(b"1")
    files.fail("fdatasync", errno.EIO, path=".segment")
    log.sync()
    assert payloads(log) == [b"1"]
    store.close()
    with timestone.open(tmp_path / "data") as again:
        assert payloads(again.log("a")) == [b"1"]


def test_disk_that_refuses_the_new_segment_too_names_the_offsets(tmp_path: Path) -> None:
    store, files = opened(tmp_path / "data")
    log = store.log("a")
    log.append(b"1", ack="synced")
    log.append_many([b"2", b"3"])
    files.fail("fdatasync", errno.EIO, forever=True)
    with pytest.raises(LogFailed, match="offsets 1 to 3 were never made durable") as caught:
        log.append(b"4", ack="synced")
    assert caught.value.unsynced == range(1, 4)
    with pytest.raises(LogFailed):
        log.append(b"5", ack="written")
    assert payloads(log) == [b"1", b"2", b"3", b"4"]
    store.close()


def test_waiting_submissions_learn_of_the_failure(tmp_path: Path) -> None:
    store, files = opened(tmp_path / "data")
    log = store.log("a")
    log.append(b"1", ack="synced")
    files.fail("fdatasync", errno.EIO, forever=True)
    submission = log.submit(timestone.WriteBatch([b"2"]), ack="synced")
    with pytest.raises(LogFailed):
        submission.wait(10)
    store.close()
