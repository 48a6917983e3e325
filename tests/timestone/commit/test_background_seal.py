import logging
import threading
from pathlib import Path

import pytest

import timestone
from tests.support.faulty_files import FaultyFiles
from tests.support.waiting import wait_for
from timestone.config import LogConfig
from timestone.log import Log


def wait_until_sealed(log: Log, count: int) -> None:
    wait_for(lambda: sum(segment.trailer is not None for segment in log.segment_list.segments) >= count)


def test_rolled_segments_are_sealed_in_the_background(quick_directory: Path) -> None:
    with timestone.open(
        quick_directory / "data", min_free_bytes=0, log=LogConfig(segment_entries=2)
    ) as store:
        log = store.log("a")
        for _ in range(7):
            log.append(b"x", ack="written")
        wait_until_sealed(log, 3)
        assert log.segment_list.segments[-1].trailer is None


def test_failed_seal_is_repeated_at_the_next_roll(
    quick_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = FaultyFiles()
    with timestone.open(
        quick_directory / "data", min_free_bytes=0, files=files, log=LogConfig(segment_entries=1)
    ) as store:
        log = store.log("a")
        fault = files.fail("truncate", 28, path=".index")
        with caplog.at_level(logging.ERROR, "timestone"):
            log.append(b"x")
            log.append(b"x")
            wait_for(lambda: fault.hits)
            log.append(b"x")
            wait_until_sealed(log, 2)
        assert [record.payload for record in log.reader()] == [b"x"] * 3
    assert "could not be sealed" in caplog.text


def test_appends_continue_while_files_of_a_sealed_segment_are_closed(quick_directory: Path) -> None:
    """Giving back the blocks of a large file takes 20 ms, and all appends waited."""
    cut, appended, closed_meanwhile = threading.Event(), threading.Event(), list[bool]()

    class SlowToClose(FaultyFiles):
        def truncate(self, fd: int, size: int) -> None:
            super().truncate(fd, size)
            cut.set()

        def close(self, fd: int) -> None:
            if cut.is_set() and threading.current_thread().name == "timestone-sealer":
                closed_meanwhile.append(appended.wait(60))
            super().close(fd)

    log_config = LogConfig(segment_entries=2)
    with timestone.open(
        quick_directory / "data", min_free_bytes=0, files=SlowToClose(), log=log_config
    ) as store:
        log = store.log("a")
        log.append_many([b"x"] * 2, ack="written")
        log.append(b"rolls", ack="written")
        assert cut.wait(60)
        wait_until_sealed(log, 1)
        log.append(b"continues", ack="written")
        appended.set()
    assert closed_meanwhile[0]


def test_close_waits_for_the_seals(quick_directory: Path) -> None:
    store = timestone.open(quick_directory / "data", min_free_bytes=0, log=LogConfig(segment_entries=1))
    log = store.log("a")
    log.append_many([b"x"] * 3, ack="written")
    for _ in range(20):
        log.append(b"x", ack="written")
    log.roll()
    store.close()
    assert all(segment.trailer for segment in log.segment_list.segments)
    with timestone.open(quick_directory / "data", min_free_bytes=0) as again:
        assert again.recoveries == ()


def test_segments_are_sealed_once_when_several_threads_seal(
    quick_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with timestone.open(
        quick_directory / "data", min_free_bytes=0, log=LogConfig(segment_entries=1)
    ) as store:
        log = store.log("a")
        failed: list[Exception] = []
        appended = threading.Event()

        def seal() -> None:
            try:
                while not appended.is_set():
                    log.seal_rolled()
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=seal) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(200):
            log.append(b"x", ack="written")
        appended.set()
        for thread in threads:
            thread.join()
        log.seal_rolled()
        assert failed == []
        assert "could not be sealed" not in caplog.text
        wait_until_sealed(log, 199)
        assert [record.payload for record in log.reader()] == [b"x"] * 200
