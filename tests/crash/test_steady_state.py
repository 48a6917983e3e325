"""An hour at a fixed rate with retention on, or three seconds of it: memory, descriptors and maps do not grow.

TIMESTONE_SOAK_SECONDS=3600 pytest tests/crash/test_steady_state.py
"""

import gc
import os
import re
import time
from contextlib import suppress
from pathlib import Path

import pytest

import timestone
from tests.support.seeds import rounds
from tests.support.waiting import wait_for
from timestone import LogConfig, OffsetOutOfRange, StoreConfig

pytestmark = [pytest.mark.crash, pytest.mark.slow]

SECONDS = rounds(3, "TIMESTONE_SOAK_SECONDS")
RATE_PER_S = 4000
BATCH = 40
PARTS = 12
"""After each of these parts, the process is measured."""
CONFIG = StoreConfig(
    min_free_bytes=0, sync_interval_ms=100, tail_bytes=1 << 20, delete_delay_ms=50, open_segment_count=4,
    log=LogConfig(segment_entries=500, retention_bytes=400_000),
)  # fmt: skip


def usage() -> tuple[int, int, int]:
    """Return resident bytes, descriptors and maps of this process."""
    gc.collect()
    status = Path("/proc/self/status").read_text("ascii")
    resident = int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) * 1024
    maps = Path("/proc/self/maps").read_text("utf-8").count(".index")
    return resident, len(os.listdir("/proc/self/fd")), maps


def size_of(directory: Path) -> int:
    """Return the bytes of the files in the folder that are not removed at the same time."""
    size = 0
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError):
            size += path.stat().st_size
    return size


@pytest.mark.timeout(0)
def test_resources_do_not_grow_under_steady_appends_and_retention(quick_directory: Path) -> None:
    seen: list[tuple[int, int, int]] = []
    with timestone.open(quick_directory / "store", config=CONFIG) as store:
        log = store.log("a")
        behind, ahead = log.reader("earliest"), log.reader("latest")
        began, appended, read = time.monotonic(), 0, 0
        for part in range(1, PARTS + 1):
            while appended < part * SECONDS * RATE_PER_S / PARTS:
                while appended < (time.monotonic() - began) * RATE_PER_S:
                    topics = [f"devices/{number % 500}" for number in range(appended, appended + BATCH)]
                    log.append_many([bytes(100)] * BATCH, topics=topics, ack="written")
                    appended += BATCH
                try:
                    read += len(ahead.read())
                    behind.read(max_records=100)
                except OffsetOutOfRange:  # on a busy machine retention passes both of them
                    ahead, behind = log.reader("latest"), log.reader("earliest")
                time.sleep(0.005)
            seen.append(usage())
        wait_for(lambda: log.start_offset > appended / 2)  # most of it has been appended and deleted
        wait_for(lambda: size_of(quick_directory / "store") < 5 * CONFIG.log.retention_bytes)
    # Files that wait for sealing and retention are held for some time, so single samples differ; a leak shows in the
    # minimum of the late ones, too.
    warm, late = seen[2:6], seen[-4:]
    growth = min(resident for resident, _, _ in late) - max(resident for resident, _, _ in warm)
    assert growth < 2 << 20, f"resident memory grew by {growth} bytes: {seen}"
    assert min(fds for _, fds, _ in late) <= max(fds for _, fds, _ in warm), seen
    assert min(maps for _, _, maps in late) <= CONFIG.open_segment_count + 2, seen
    assert read
