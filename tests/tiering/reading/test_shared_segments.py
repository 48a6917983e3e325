"""Segments of a bucket in a folder of several processes: fetched by one of them, and evicted for all."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.buckets import FaultyBucket
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.objects.manifest import Manifest
from timestone_tiering.objects.manifests import LogObjects
from timestone_tiering.reading import shared_segments
from timestone_tiering.reading.shared_segments import SharedSegments

UNLIMITED = 1 << 40
KILLED = """
import sys, time
from pathlib import Path
from timestone_tiering.objects.history import log_histories
from timestone_tiering.objects.manifests import LogObjects
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.reading.shared_segments import SharedSegments

class Hanging(LogObjects):
    def pieces(self, stored):
        yield b"half"
        print("fetching", flush=True)
        time.sleep(600)

(history,) = log_histories(FolderBucket(Path(sys.argv[1])))
objects = Hanging(history.objects.bucket, history.objects.place)
with SharedSegments(Path(sys.argv[2]), 1 << 40).use(objects, history.manifest.segments[0]):
    pass
"""


def shared(tmp_path: Path, limit_bytes: int = UNLIMITED) -> SharedSegments:
    return SharedSegments(tmp_path / "cache", limit_bytes)


def present(tmp_path: Path) -> list[str]:
    return sorted(os.listdir(tmp_path / "cache" / "segments"))


def test_segment_is_fetched_once_when_many_ask_at_the_same_time(
    stored: Manifest, faulty: FaultyBucket, tmp_path: Path
) -> None:
    """As in several processes: a lock is of an open file, and each has its own."""
    objects = LogObjects(faulty, stored.place)

    def use(_: int) -> int:
        with shared(tmp_path).use(objects, stored.segments[0]) as folder:
            return len(os.listdir(folder))

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(use, range(16))) == {2}
    assert len(faulty.calls) == 2


def test_segments_of_all_are_evicted_when_the_folder_is_full(
    stored: Manifest, faulty: FaultyBucket, tmp_path: Path
) -> None:
    objects = LogObjects(faulty, stored.place)
    one, two, three = stored.segments
    first, second = (shared(tmp_path, one.size_bytes + two.size_bytes + 100) for _ in range(2))
    for number, (cache, segment) in enumerate([(first, one), (second, two), (first, one), (second, three)]):
        with cache.use(objects, segment) as folder:
            os.utime(folder, (number, number))  # the clock of a file system may be coarse
    with second.use(objects, three):
        pass
    assert [first.holds(objects, segment) for segment in stored.segments] == [True, False, True]
    assert len(faulty.calls) == 6
    with first.use(objects, two) as folder:  # which the other one has removed
        assert len(os.listdir(folder)) == 2


def test_segment_in_use_is_not_evicted(
    stored: Manifest, bucket: FolderBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        shared_segments, "_LOCKS", 1 << 32
    )  # two segments of one lock would wait for each other
    objects = LogObjects(bucket, stored.place)
    one, two, _ = stored.segments
    cache, other = shared(tmp_path, 1), shared(tmp_path, 1)
    with cache.use(objects, one) as folder:
        with other.use(objects, two):
            pass
        assert len(os.listdir(folder)) == 2
    other._evict()
    assert present(tmp_path) == []


def test_killed_process_delays_no_other_and_its_rest_is_removed(
    stored: Manifest, bucket: FolderBucket, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "bucket"), str(tmp_path / "cache")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "fetching\n"
        cache, objects = shared(tmp_path), LogObjects(bucket, stored.place)
        (left,) = present(tmp_path)
        assert left.endswith(".tmp"), "it is at work, so nothing is removed"
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lambda: list(_names(cache, objects, stored)))
            assert not waiting.done()
            child.send_signal(signal.SIGKILL)
            assert len(waiting.result(60)) == 2
    shared(tmp_path)
    assert [name.endswith(".tmp") for name in present(tmp_path)] == [False]


def _names(cache: SharedSegments, objects: LogObjects, stored: Manifest) -> list[str]:
    with cache.use(objects, stored.segments[0]) as folder:
        return os.listdir(folder)


@pytest.mark.parametrize("length", [0, 10])
def test_file_of_another_length_is_fetched_again(
    stored: Manifest, faulty: FaultyBucket, tmp_path: Path, length: int
) -> None:
    objects = LogObjects(faulty, stored.place)
    with shared(tmp_path).use(objects, stored.segments[0]) as folder:
        pass
    os.truncate(folder / f"{0:020d}.segment", length)
    with shared(tmp_path).use(objects, stored.segments[0]):
        assert len(faulty.calls) == 4
