"""The cases of the full-disk tests: they run in a user namespace in which they may mount a small tmpfs.

    unshare -Urm python -m tests.support.full_disk MOUNTPOINT CASE

Each case is a function; it raises when a promise is broken. Prints nothing on success.
"""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import timestone
from tests.support.child_process import in_child
from tests.support.faulty_files import kill_process
from timestone import Ack, Log, LogConfig, StorageFull, Store, StoreConfig

DISK_BYTES = 2 * 1024 * 1024
LOG_NAME = "telemetry"
CONFIG = StoreConfig(min_free_bytes=0, log=LogConfig(segment_bytes=300_000))


def mount(place: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "small", place], check=True)


def check_error(error: OSError, number: int) -> None:
    assert error.errno == number, error
    assert error.filename, f"{error!r} does not say where"


def append_until_full(log: Log, size: int) -> list[bytes]:
    """Append records of some size until the disk is full; return the acknowledged ones."""
    acknowledged: list[bytes] = []
    for number in range(10**6):
        payload = b"%06d" % number + os.urandom(size)
        end = log.end_offset
        try:
            offset = log.append(payload, ack=Ack.SYNCED if number % 50 == 0 else Ack.WRITTEN)
        except OSError as error:
            check_error(error, errno.ENOSPC)
            assert log.end_offset == end, "no offset was given out"
            return acknowledged
        assert offset == end
        acknowledged.append(payload)
    raise AssertionError("the disk never was full")


def fill(place: Path) -> None:
    """Use up all free space, to the last page."""
    with (place / "ballast").open("ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


def payloads(store: Store) -> list[bytes]:
    return [record.payload for record in store.log(LOG_NAME).reader("earliest")]


def appends_go_on_when_there_is_room_again(place: Path) -> None:
    for round_number, size in enumerate((10, 100, 1000, 3333)):
        root = place / f"store{round_number}"
        ballast = place / "room"
        ballast.write_bytes(bytes(600_000))
        store = timestone.open(root, config=CONFIG)
        expected = append_until_full(store.log(LOG_NAME), size)
        assert payloads(store) == expected, "readable while full"
        ballast.unlink()
        more = [b"more %d" % number for number in range(20)]
        store.log(LOG_NAME).append_many(more, ack=Ack.SYNCED)
        expected += more
        assert payloads(store) == expected
        store.close()
        with timestone.open(root, config=CONFIG) as again:
            assert payloads(again) == expected
        subprocess.run(["rm", "-r", root], check=True)


def recovery_needs_no_space(place: Path) -> None:
    """Killed on a disk that is full to the last page, and opened there: every acknowledged record is served."""
    root = place / "store"
    room = place / "room"
    room.write_bytes(bytes(300_000))

    def run(pipe: int) -> None:
        store = timestone.open(root, config=CONFIG)
        os.write(pipe, str(len(append_until_full(store.log(LOG_NAME), 500))).encode())
        kill_process()

    _, report = in_child(run)
    count = int(report)
    fill(place)
    for _ in range(3):
        store = timestone.open(root, config=CONFIG)
        assert len(payloads(store)) == count
        try:
            store.log(LOG_NAME).append(bytes(100_000), ack=Ack.WRITTEN)
        except OSError as error:
            check_error(error, errno.ENOSPC)
        store.close()
    room.unlink()
    with timestone.open(root, config=CONFIG) as store:
        assert len(payloads(store)) == count
        assert store.log(LOG_NAME).append(b"room", ack=Ack.SYNCED) == count
    with timestone.open(root, config=CONFIG) as store:
        assert len(payloads(store)) == count + 1
        assert store.recoveries == ()


def appends_stop_before_the_disk_is_full(place: Path) -> None:
    config = StoreConfig(min_free_bytes=700_000)
    with timestone.open(place / "store", config=config) as store:
        log = store.log(LOG_NAME)
        try:
            for _ in range(10_000):
                log.append(bytes(1000), ack=Ack.WRITTEN)
        except StorageFull as error:
            full = error
        else:
            pytest.fail("no call looked at the free space")
        assert full.limit_bytes == 700_000
        assert full.free_bytes < 700_000 + 1000
        status = os.statvfs(place)
        assert status.f_bavail * status.f_frsize > 500_000, "there is room left for a seal"


def a_read_only_disk_can_be_viewed(place: Path) -> None:
    root = place / "store"
    store = timestone.open(root, config=CONFIG)
    store.log(LOG_NAME).append_many([b"a", b"b"], topic="t", ack=Ack.SYNCED)
    copy = place / "copy"
    subprocess.run(["cp", "-r", root, copy], check=True)  # as a crash leaves it
    store.close()
    subprocess.run(["mount", "-o", "remount,ro", place], check=True)
    with timestone.view(copy) as view:
        assert [record.payload for record in view.log(LOG_NAME).reader("earliest", topics="t")] == [
            b"a",
            b"b",
        ]
    try:
        timestone.open(copy)
    except OSError as error:
        check_error(error, errno.EROFS)
    else:
        pytest.fail("a store on a read-only disk has no owner")


if __name__ == "__main__":
    mount(Path(sys.argv[1]))
    globals()[sys.argv[2]](Path(sys.argv[1]))
