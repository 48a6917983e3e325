"""Temporary folders: what a killed process leaves is removed by the next one, and no folder that is used."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import timestone
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.reading import temporary_folder as module
from timestone_tiering.reading.temporary_folder import PREFIX, TemporaryFolder

_VIEW = """
import os, signal, sys, timestone
with timestone.view(sys.argv[1]) as view:
    view.log("telemetry").read(0)
    print("read", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def test_a_folder_is_there_until_it_is_closed(own_folder: Path) -> None:
    with TemporaryFolder() as one, TemporaryFolder() as other:
        (one.path / "file").write_bytes(b"x")
        assert sorted(own_folder.iterdir()) == sorted([one.path, other.path])
    one.close()
    assert list(own_folder.iterdir()) == []


def test_the_folder_of_a_killed_process_is_removed_and_that_of_a_living_one_is_not(
    uploaded: FolderBucket, own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _VIEW, uploaded.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdin is not None
    try:
        assert process.stdout.readline() == b"read\n"
        (left,) = own_folder.glob(f"{PREFIX}*")
        assert list(left.rglob("*.segment"))
        monkeypatch.setattr(module, "_NEW_S", -60.0)
        with timestone.view(uploaded.url):
            assert left.exists(), "its process lives"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        monkeypatch.setattr(module, "_NEW_S", 60.0)
        with timestone.view(uploaded.url):
            assert left.exists(), "it may be about to be locked"
        monkeypatch.setattr(module, "_NEW_S", -60.0)
        with timestone.view(uploaded.url):
            assert not left.exists()
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
    assert list(own_folder.glob(f"{PREFIX}*")) == []
