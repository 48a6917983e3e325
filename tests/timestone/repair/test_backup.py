"""A backup of a store whose owner continues to write is a store that opens, with all records from before it began."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import timestone
from tests.support.faulty_files import FaultyFiles
from tests.support.waiting import wait_for, wait_for_seals
from timestone import LogConfig, ReaderId
from timestone.disk.files import Files
from timestone.errors import CorruptLog, NotAStore
from timestone.repair.backup import back_up_store
from timestone.repair.inspection import inspect_store


class Watched(Files):
    """Calls back in front of each file that is opened or made."""

    def __init__(self, in_front: Callable[[Path], None]) -> None:
        super().__init__()
        self._in_front = in_front

    def open(self, path: Path, *, write: bool = False) -> int:
        self._in_front(path)
        return super().open(path, write=write)

    def create(self, path: Path) -> int:
        self._in_front(path)
        return super().create(path)


def payloads(path: Path, log: str = "a") -> list[bytes]:
    with timestone.open(path, min_free_bytes=0) as store:
        return [record.payload for record in store.log(log, create=False).reader()]


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def test_backup_of_a_live_store_has_records_settings_and_readers(tmp_path: Path) -> None:
    config = LogConfig(segment_entries=10, retention_ms=10**9)
    with timestone.open(tmp_path / "data", min_free_bytes=0) as store:
        log = store.log("a", config=config)
        log.append_many(numbered(0, 25), topic="x")
        store.log("b", 3).append(b"other")
        store.commit_readers({ReaderId("a", 0, "billing"): 7})
        copied = back_up_store(tmp_path / "data", tmp_path / "backup")
        log.append(b"later")
    assert [(one.folder, one.bytes > 0) for one in copied] == [("a-0", True), ("b-3", True)]
    assert inspect_store(tmp_path / "backup", deep=True).exit_code in (0, 1)
    with timestone.open(tmp_path / "backup", min_free_bytes=0) as store:
        log = store.log("a", create=False)
        assert log.config == config
        assert [(record.payload, record.topic) for record in log.reader()] == [
            (payload, "x") for payload in numbered(0, 25)
        ]
        assert store.readers()[ReaderId("a", 0, "billing")].offset == 7
        assert log.append(b"continues") == 25
        assert [record.payload for record in store.log("b", 3).reader()] == [b"other"]
    assert len(payloads(tmp_path / "data")) == 26


def test_backup_is_consistent_when_the_owner_writes_before_each_step(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data", min_free_bytes=0) as store:
        log = store.log("a", config=LogConfig(segment_entries=250))
        log.append_many(numbered(0, 7), topic="t0")

        def append(path: Path) -> None:
            for _ in range(3):  # a checkpoint declares records as synced only with the flush after them
                end = log.end_offset
                log.append_many(numbered(end, end + 7), topic=f"t{end}")

        for number in range(3):
            least = log.end_offset
            back_up_store(tmp_path / "data", tmp_path / f"backup-{number}", files=Watched(append))
            with timestone.open(tmp_path / f"backup-{number}", min_free_bytes=0) as copy:
                records = list(copy.log("a", create=False).reader())
            assert least <= len(records) < log.end_offset
            assert [record.payload for record in records] == numbered(0, len(records))
            assert [record.topic for record in records] == [
                f"t{record.offset // 7 * 7}" for record in records
            ]


def test_backup_has_no_part_of_a_segment_that_retention_deletes_during_it(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data", min_free_bytes=0, delete_delay_ms=0) as store:
        log = store.log("a", config=LogConfig(segment_entries=10))
        for number in range(5):
            log.append_many(numbered(number * 10, number * 10 + 10))
        wait_for_seals(log)
        deleted: list[int] = []

        def delete_in_front_of_the_second(path: Path) -> None:
            if (
                path.name == "00000000000000000010.index"
                and path.parent.parent.name == "data"
                and not deleted
            ):
                log.configure(retention_bytes=1)
                deleted.append(log.apply_retention() or log.start_offset)

        back_up_store(tmp_path / "data", tmp_path / "backup", files=Watched(delete_in_front_of_the_second))
        assert log.start_offset > 10
        start = log.start_offset
    assert inspect_store(tmp_path / "backup", deep=True).exit_code in (0, 1)
    assert payloads(tmp_path / "backup") == numbered(start, 50)


def test_backup_keeps_other_segments_when_an_empty_one_is_removed_during_it(tmp_path: Path) -> None:
    """The backup had no record at all then, without any message."""
    disk = FaultyFiles()
    with timestone.open(tmp_path / "data", min_free_bytes=0, files=disk) as store:
        log = store.log("a", config=LogConfig(segment_entries=10))
        log.append_many(numbered(0, 10))
        log.append_many(numbered(10, 20))
        disk.fail("pwrite", errno.ENOSPC, path=f"{20:020d}.segment")
        with pytest.raises(OSError, match="No space"):
            log.append(b"20")
        last = tmp_path / "data" / "a-0" / f"{20:020d}.index"
        assert last.exists()

        def roll_in_front_of_the_last(path: Path) -> None:
            if path == last:
                log.roll()

        back_up_store(tmp_path / "data", tmp_path / "backup", files=Watched(roll_in_front_of_the_last))
        assert not last.exists()
    assert payloads(tmp_path / "backup") == numbered(0, 20)


def test_backup_of_a_log_that_retention_empties_during_it_keeps_its_next_offset(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data", min_free_bytes=0, delete_delay_ms=0) as store:
        log = store.log("a")
        log.append_many(numbered(0, 10))
        log.roll()
        wait_for_seals(log)

        def empty_behind_the_catalogue(path: Path) -> None:
            if path.name == "catalog.db" and path.parent.name == "backup.partial":
                log.configure(retention_ms=1)
                wait_for(lambda: log.apply_retention() or log.start_offset == 10)

        back_up_store(tmp_path / "data", tmp_path / "backup", files=Watched(empty_behind_the_catalogue))
        assert log.start_offset == 10
    with timestone.open(tmp_path / "backup", min_free_bytes=0) as store:
        assert store.log("a", create=False).append(b"10") == 10


@pytest.mark.parametrize("place", ["a-0", "b-0"])
@pytest.mark.parametrize("again", [False, True], ids=["gone", "another one has its name"])
def test_backup_omits_a_log_that_is_deleted_during_it(tmp_path: Path, place: str, again: bool) -> None:
    """The backup failed: another owner's log had taken all others with it."""
    with timestone.open(tmp_path / "data", min_free_bytes=0, delete_delay_ms=0) as store:
        store.log("a").append(b"other")
        log = store.log("b", config=LogConfig(segment_entries=10))
        for number in range(3):
            log.append_many(numbered(number * 10, number * 10 + 10))
        store.commit_readers({ReaderId("b", 0, "billing"): 7})
        deleted: list[Path] = []

        def delete_in_front_of_the_last(path: Path) -> None:
            if path.parent == tmp_path / "data" / place and path.suffix == ".index" and not deleted:
                deleted.append(path)
                store.delete_log("b")
                store.deleted_files.unlink_due()
                if again:
                    store.log("b").append(b"another")

        copied = back_up_store(
            tmp_path / "data", tmp_path / "backup", files=Watched(delete_in_front_of_the_last)
        )
    assert deleted
    assert [(one.folder, one.segments, one.is_deleted) for one in copied] == [
        ("a-0", 1, False),
        ("b-0", 0, True),
    ]
    assert inspect_store(tmp_path / "backup", deep=True).exit_code in (0, 1)
    with timestone.open(tmp_path / "backup", min_free_bytes=0) as store:
        assert store.log_names() == [("a", 0)]
        assert store.readers() == {}
        assert store.log("b").append(b"continues") == 0


def test_backup_omits_a_log_that_is_deleted_before_its_turn(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data", min_free_bytes=0, delete_delay_ms=0) as store:
        store.log("a").append(b"other")
        store.log("b").append(b"0")
        topics = tmp_path / "data" / "b-0" / "topics"

        def delete_in_front_of_the_first_look(path: Path) -> None:
            if path == topics and topics.exists():
                store.delete_log("b")

        copied = back_up_store(
            tmp_path / "data", tmp_path / "backup", files=Watched(delete_in_front_of_the_first_look)
        )
    assert [one.folder for one in copied] == ["a-0"]
    with timestone.open(tmp_path / "backup", min_free_bytes=0) as store:
        assert store.log_names() == [("a", 0)]


def test_backup_reports_a_log_whose_folder_is_lost(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data", min_free_bytes=0) as store:
        store.log("a").append(b"0")
        store.log("b").append(b"0")
    shutil.rmtree(tmp_path / "data" / "b-0")
    with pytest.raises(FileNotFoundError, match="b-0"):
        back_up_store(tmp_path / "data", tmp_path / "backup")


def test_backup_copies_the_new_files_of_a_segment_rewritten_during_it(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data", min_free_bytes=0, delete_delay_ms=0) as store:
        log = store.log("a", config=LogConfig(segment_entries=100))
        log.append_many([b'{"celsius": 21.5, "humidity": 40}'] * 100)
        log.roll()
        wait_for_seals(log)
        rewritten: list[bool] = []

        def compress_between_the_two(path: Path) -> None:
            if path.name.endswith("0.segment") and path.parent.parent.name == "data" and not rewritten:
                rewritten.append(True)  # before: the compression opens it, too
                log.configure(compression="zstd")
                log.apply_compression()
                (tmp_path / "data" / "a-0" / "00000000000000000000.segment").unlink(missing_ok=True)

        back_up_store(tmp_path / "data", tmp_path / "backup", files=Watched(compress_between_the_two))
    assert rewritten
    assert inspect_store(tmp_path / "backup", deep=True).exit_code == 0
    assert len(payloads(tmp_path / "backup")) == 100


@pytest.mark.parametrize("suffix", ["segment", "index"])
def test_backup_refuses_a_store_that_lacks_a_file_and_names_salvage(tmp_path: Path, suffix: str) -> None:
    with timestone.open(tmp_path / "data", min_free_bytes=0) as store:
        store.log("a", config=LogConfig(segment_entries=10)).append_many(numbered(0, 10))
        store.log("a").append(b"10")
    (tmp_path / "data" / "a-0" / f"00000000000000000000.{suffix}").unlink()
    with pytest.raises(CorruptLog, match="missing: `timestone salvage`"):
        back_up_store(tmp_path / "data", tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_backup_copies_a_store_without_a_catalogue(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data", min_free_bytes=0) as store:
        store.log("a").append_many(numbered(0, 3))
    (tmp_path / "data" / "catalog.db").unlink()
    back_up_store(tmp_path / "data", tmp_path / "backup")
    assert payloads(tmp_path / "backup") == numbered(0, 3)


def test_backup_refuses_invalid_targets(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data", min_free_bytes=0) as store:
        store.log("a").append(b"0")
        (tmp_path / "there").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "nowhere")
        for name in ("there", "link"):
            with pytest.raises(FileExistsError, match="already there"):
                back_up_store(tmp_path / "data", tmp_path / name)
        with pytest.raises(ValueError, match="expected a path outside of"):
            back_up_store(tmp_path / "data", tmp_path / "data" / "backup")
        with pytest.raises(NotAStore, match="neither logs nor"):
            back_up_store(tmp_path / "there", tmp_path / "backup")
        with pytest.raises(NotAStore, match="does not exist"):
            back_up_store(tmp_path / "nowhere", tmp_path / "backup")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "link", "there"]


def test_backup_replaces_the_files_of_a_killed_one_and_refuses_beside_a_running_one(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data", min_free_bytes=0) as store:
        store.log("a").append_many(numbered(0, 3))
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from timestone.repair.backup import back_up_store\n"
        "def wait(log, done): print(log, flush=True); time.sleep(600)\n"
        "back_up_store(Path('data'), Path('backup'), progress=wait)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == "a-0\n"
            with pytest.raises(FileExistsError, match="another backup is being written there"):
                back_up_store(tmp_path / "data", tmp_path / "backup")
        finally:
            os.kill(running.pid, signal.SIGKILL)
    (tmp_path / "backup.partial" / "b-0").mkdir()  # of a log that there was then
    (tmp_path / "backup.partial" / "b-0" / "topics").touch()
    back_up_store(tmp_path / "data", tmp_path / "backup")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "data"]
    assert sorted(path.name for path in (tmp_path / "backup").iterdir()) == ["a-0", "catalog.db"]
    assert payloads(tmp_path / "backup") == numbered(0, 3)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_failed_backup_removes_its_files(tmp_path: Path, error: BaseException) -> None:
    def fail(path: Path) -> None:
        if path.suffix == ".segment" and path.parent.parent != tmp_path / "data":
            raise error

    with timestone.open(tmp_path / "data", min_free_bytes=0) as store:
        store.log("a").append(b"0")
    with pytest.raises(type(error)):
        back_up_store(tmp_path / "data", tmp_path / "backup", files=Watched(fail))
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_backup_keeps_a_folder_that_no_backup_has_made(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data", min_free_bytes=0) as store:
        store.log("a").append(b"0")
    (tmp_path / "backup.partial").mkdir()
    (tmp_path / "backup.partial" / "mine").touch()
    with pytest.raises(FileExistsError, match="is already there"):
        back_up_store(tmp_path / "data", tmp_path / "backup")
    assert (tmp_path / "backup.partial" / "mine").exists()


def test_backup_copies_one_state_of_an_index_that_is_sealed_during_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two pieces: the copy had the trailer, and zeros where the topic summary in front of it lies."""
    monkeypatch.setattr("timestone.disk.files._COPY_BYTES", 4096)

    class SealedBetween(Files):
        def pread(self, fd: int, length_bytes: int, position: int) -> bytes:
            piece = super().pread(fd, length_bytes, position)
            path = os.readlink(f"/proc/self/fd/{fd}")
            if path.endswith(".index") and position == 4096 and log.segment_list.segments[0].trailer is None:
                log.roll()
                wait_for_seals(log)
            return piece

    with timestone.open(tmp_path / "data", min_free_bytes=0) as store:
        log = store.log("a")
        log.append_many(numbered(0, 125), topics=[f"t/{number % 8}" for number in range(125)], ack="synced")
        back_up_store(tmp_path / "data", tmp_path / "backup", files=SealedBetween())
        assert log.segment_list.segments[0].trailer is not None, "it was sealed in between"
    assert inspect_store(tmp_path / "backup", deep=True).exit_code in (0, 1)
    assert payloads(tmp_path / "backup") == numbered(0, 125)
