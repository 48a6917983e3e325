"""Doorbells between processes: a listener is woken, and ringing without a listener is reported."""

import os
import threading
from pathlib import Path

import pytest

from tests.support.waiting import TIMEOUT_S, wait_for
from timestone.spool.doorbell import Doorbell, ring


def test_doorbell_calls_back_at_the_start_and_when_it_is_rung(tmp_path: Path) -> None:
    answered = threading.Semaphore(0)
    doorbell = Doorbell(tmp_path / "bell", answered.release, name="test-bell")
    assert answered.acquire(timeout=TIMEOUT_S)
    for _ in range(3):
        assert ring(tmp_path / "bell")
        assert answered.acquire(timeout=TIMEOUT_S)
    doorbell.close()


def test_ring_returns_false_without_a_listener(tmp_path: Path) -> None:
    path = tmp_path / "bell"
    assert not ring(path)
    Doorbell(path, lambda: None, name="test-bell").close()
    assert not ring(path)
    assert not path.exists()
    os.mkfifo(path)  # of a process that was killed
    assert not ring(path)


def test_file_in_the_place_of_the_doorbell_or_of_its_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bell"
    path.write_bytes(b"")
    for taken, reason in (
        (path, "expected a named pipe, got another file"),
        (path / "bell", "Not a directory"),
    ):
        with pytest.raises(OSError, match=f"{reason}: '{taken}'"):
            Doorbell(taken, lambda: None, name="test-bell")


def test_ring_never_waits_for_a_busy_listener(tmp_path: Path) -> None:
    busy, go_on = threading.Event(), threading.Event()

    def answer() -> None:
        busy.set()
        go_on.wait()

    doorbell = Doorbell(tmp_path / "bell", answer, name="test-bell")
    assert busy.wait(TIMEOUT_S)
    try:
        assert all(ring(tmp_path / "bell") for _ in range(70_000))
    finally:
        go_on.set()
        doorbell.close()


def test_forked_child_does_not_keep_the_doorbell_open(tmp_path: Path) -> None:
    path = tmp_path / "bell"
    doorbell = Doorbell(path, lambda: None, name="test-bell")
    may_end, ended = os.pipe()
    child = os.fork()
    if child == 0:
        doorbell.abandon()
        os.close(ended)
        os.read(may_end, 1)
        os._exit(0)
    doorbell.close()
    try:
        # The child lives, but does not listen; it takes a moment to let go.
        wait_for(lambda: not ring(path))
    finally:
        os.close(ended)
        os.close(may_end)
        os.waitpid(child, 0)
