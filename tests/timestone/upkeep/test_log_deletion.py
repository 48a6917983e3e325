"""A log is deleted in one durable step, and does not come back after any interruption."""

import errno
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import timestone
from tests.support.compressed import fill, open_compressed
from tests.support.faulty_files import FaultyFiles, SimulatedKill
from tests.support.waiting import wait_for, wait_for_seals
from timestone import (
    Log,
    LogConfig,
    ReaderId,
    Store,
    StoreClosed,
    StoreConfig,
    Submission,
    UnknownLog,
    WriteBatch,
)

CONFIG = StoreConfig(min_free_bytes=0, delete_delay_ms=0, log=LogConfig(segment_entries=7))
READER = ReaderId("telemetry", 0, "billing")
RECORDS = [b"%d" % number for number in range(20)]


@pytest.fixture
def root(quick_directory: Path) -> Path:
    """Two logs of several segments, a reader's place on each."""
    root = quick_directory / "data"
    with timestone.open(root, config=CONFIG) as store:
        for name in ("telemetry", "telemetry-0"):
            store.log(name).append_many(RECORDS, topic="t")
            store.commit_readers({READER._replace(log=name): 11})
    return root


def folders(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.is_dir())


def payloads(log: Log) -> list[bytes]:
    return [record.payload for record in log.reader()]


def test_delete_removes_the_log_and_its_readers_only(root: Path) -> None:
    with timestone.open(root, config=CONFIG) as store:
        store.delete_log("telemetry")
        assert store.log_names() == [("telemetry-0", 0)]
        assert store.readers().keys() == {READER._replace(log="telemetry-0")}
        with pytest.raises(UnknownLog, match="telemetry-0-0"):
            store.log("telemetry", create=False)
        with pytest.raises(UnknownLog):
            store.delete_log("telemetry")
        wait_for(lambda: folders(root) == ["telemetry-0-0"])
    with timestone.open(root, config=CONFIG) as store:
        assert store.recoveries == ()
        assert payloads(store.log("telemetry-0", create=False)) == RECORDS


def test_new_log_of_the_same_name_is_distinct(root: Path) -> None:
    with timestone.open(root, config=CONFIG) as store:
        old = store.log("telemetry")
        store.delete_log("telemetry")
        new = store.log("telemetry")
        assert new.id != old.id
        assert (new.start_offset, new.append(b"new", topic="u")) == (0, 0)
        assert store.committed(READER) is None
    with timestone.open(root, config=CONFIG) as store:
        assert store.log("telemetry").id == new.id
        assert payloads(store.log("telemetry")) == [b"new"]


def test_files_stay_for_other_processes_until_the_delay_is_over(root: Path) -> None:
    config = StoreConfig(min_free_bytes=0, delete_delay_ms=10**9)
    with timestone.open(root, config=config) as store:
        for _ in range(2):
            store.delete_log("telemetry")
            store.log("telemetry").append(b"again")
        assert folders(root) == [
            "telemetry-0", "telemetry-0-0", "telemetry-0.deleted", "telemetry-0.deleted.2"
        ]  # fmt: skip
    assert folders(root) == ["telemetry-0", "telemetry-0-0"]


USES: dict[str, Callable[[Log], object]] = {
    "append": lambda log: log.append(b"x"),
    "submit": lambda log: log.submit(WriteBatch([b"x"], 0), ack="synced"),
    "read": lambda log: log.read(0),
    "record": lambda log: log.record(3),
    "reader": lambda log: log.reader().read(),
    "sync": lambda log: log.sync(),
    "roll": lambda log: log.roll(),
    "configure": lambda log: log.configure(segment_entries=9),
    "apply_retention": lambda log: log.apply_retention(),
}


def test_calls_on_a_deleted_log_raise(root: Path) -> None:
    with timestone.open(root, config=CONFIG) as store:
        log = store.log("telemetry")
        log.append(b"in a growing segment")
        store.delete_log("telemetry")
        for use in USES.values():
            with pytest.raises(StoreClosed, match="telemetry-0 was deleted"):
                use(log)
        assert log.has_ended
        log.retention.run()
        log.compression.apply()
        log.compaction.apply()
        log.seal_rolled()
    assert folders(root) == ["telemetry-0-0"]


def test_parked_reader_of_a_deleted_log_is_woken_with_an_error(root: Path) -> None:
    told: list[str] = []
    with timestone.open(root, config=CONFIG) as store:
        log = store.log("telemetry")

        def follow() -> None:
            with log.reader("latest") as reader:
                reader.wait(60)
                reader.read()

        def wait() -> None:
            with pytest.raises(StoreClosed) as caught:
                follow()
            told.append(str(caught.value))

        thread = threading.Thread(target=wait)
        thread.start()
        wait_for(lambda: bool(log.wakeups.parked))
        store.delete_log("telemetry")
        thread.join(60)
    assert told == ["log telemetry-0 was deleted"]


def test_submission_is_resolved_when_it_races_with_the_deletion(root: Path) -> None:
    done: list[Submission] = []
    with timestone.open(root, config=CONFIG) as store:
        log = store.log("telemetry")
        with log._commit.sync_lock:  # a flush that takes its time
            log.submit(WriteBatch([b"x"], 0), ack="synced", done=done.append)
            wait_for(lambda: log._commit.awaited)
            deleting = threading.Thread(target=lambda: store.delete_log("telemetry"))
            deleting.start()
        deleting.join(60)
        wait_for(lambda: bool(done))
    assert done[0].error is None or isinstance(done[0].error, StoreClosed)


def test_log_that_failed_can_be_deleted(root: Path) -> None:
    files = FaultyFiles()
    with Store(root, CONFIG, files=files) as store:
        log = store.log("telemetry")
        log.append(b"x", ack="written")
        fault = files.fail("fdatasync", forever=True)
        with pytest.raises(timestone.LogFailed):
            log.sync()
        fault.lift()
        store.delete_log("telemetry")
        assert payloads(store.log("telemetry")) == []
        assert store.log("telemetry").append(b"y", ack="synced") == 0


def test_delete_changes_nothing_when_the_catalogue_cannot_be_written(root: Path) -> None:
    with timestone.open(root, config=CONFIG) as store:
        log = store.log("telemetry")
        store._catalog._connection.execute("PRAGMA query_only = 1")
        with pytest.raises(OSError, match="catalog"):
            store.delete_log("telemetry")
        store._catalog._connection.execute("PRAGMA query_only = 0")
        assert log.append(b"more") == 20
        assert store.log("telemetry") is log
    with timestone.open(root, config=CONFIG) as store:
        assert payloads(store.log("telemetry")) == [*RECORDS, b"more"]


def test_new_log_is_refused_while_the_deleted_folder_keeps_its_name(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = FaultyFiles()
    with Store(root, CONFIG, files=files) as store:
        fault = files.fail("rename", errno.EACCES, path="deleted", forever=True)
        with caplog.at_level(logging.WARNING, "timestone"):
            store.delete_log("telemetry")
        assert "a deleted log still takes space" in caplog.text
        with pytest.raises(PermissionError):
            store.log("telemetry")
        assert store.log_names() == [("telemetry-0", 0)]
    with Store(root, CONFIG, files=files) as store:
        assert store.log_names() == [("telemetry-0", 0)]
        fault.lift()
        assert payloads(store.log("telemetry")) == []


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_delete_leaves_the_log_complete_or_deleted(root: Path, moment: str) -> None:
    """At every operation on the disk; also as after a power loss, which may undo a rename that was not synced."""
    died = deaths = 0
    while died == deaths:
        number = deaths + 1
        files = FaultyFiles()
        store = Store(root, CONFIG, files=files)
        store.maintenance.stop()
        store.log("telemetry").append_many(RECORDS)
        wait_for_seals(store.log("telemetry"))
        files.kill(number, moment)
        try:
            store.delete_log("telemetry")
        except SimulatedKill:
            died += 1
        synced = any(operation == "sync_directory" for operation, _ in files.calls[-1:])
        files.abandon()
        store.abandon()
        deaths += 1
        renamed = root / "telemetry-0.deleted"
        if renamed.exists() and died == deaths and not synced:
            renamed.rename(root / "telemetry-0")
        with timestone.open(root, config=CONFIG) as opened:
            assert ("telemetry", 0) not in opened.log_names()
            assert payloads(opened.log("telemetry")) == []
            opened.log("telemetry").append_many(RECORDS)
            assert opened.log("telemetry").end_offset == len(RECORDS)
        assert folders(root) == ["telemetry-0", "telemetry-0-0"]
    assert deaths > 2


def test_deletion_document_is_kept_until_the_renamed_folder_is_durable(root: Path) -> None:
    """The process that renamed the folder may have died before the rename was durable; a power loss then reverts it."""
    for _ in range(2):
        files = FaultyFiles()
        files.fail("sync_directory", path=str(root), forever=True)
        store = Store(root, replace(CONFIG, delete_delay_ms=10**9), files=files)
        if ("telemetry", 0) in store.log_names():
            store.delete_log("telemetry")
        store.maintenance.stop()
        store.abandon()
        store.documents.close()
        files.abandon()
    (root / "telemetry-0.deleted").rename(root / "telemetry-0")
    with timestone.open(root, config=CONFIG) as store:
        assert store.log_names() == [("telemetry-0", 0)]


def test_new_log_keeps_its_files_when_a_deleted_one_of_its_name_was_rewritten_before(root: Path) -> None:
    """Files that a rewrite has replaced wait to be unlinked, under names that the new log uses as well."""
    with open_compressed(root) as store:  # nothing is unlinked before its end
        log = store.log("new")
        fill(log, 250)
        while log.compression.run() is not None:
            pass
        store.delete_log("new")
        log = store.log("new")
        fill(log, 250)
        expected = payloads(log)
    with open_compressed(root) as store:
        assert (store.recoveries, payloads(store.log("new"))) == ((), expected)
