"""Stores with sealed segments that compress well, and reads of them."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.support.step_clock import StepClock
from tests.support.waiting import wait_for_seals
from timestone import LogConfig, StoreConfig
from timestone.disk.files import Files
from timestone.errors import CorruptRecord
from timestone.log import Log
from timestone.reading.batch import Batch
from timestone.recovery.record_verifier import UnprovenRange
from timestone.store import Store
from timestone.upkeep.maintenance import Maintenance, Task
from timestone.upkeep.segment_check import SegmentCheck
from timestone.view import LogView

NEVER_MS = 10**9


class Asleep(Maintenance):
    """A background that does nothing by itself: the tests call its work."""

    def expect(self, task: Task, after_s: float = 0.0) -> None:
        """Ignore it."""


def payload_of(offset: int) -> bytes:
    """Return the payload that `fill` appends at an offset: sometimes empty, sometimes large."""
    first, count = offset * 211, offset % 5 if offset % 1000 != 999 else 60
    return b"".join(
        b'{"device":"sensor-%d","temperature":%d.5,"state":"running","at":%d}' % (n % 13, n % 41, n * n)
        for n in range(first, first + count)
    )


def open_compressed(
    root: Path, files: Files | None = None, *, segment_entries: int = 100, **settings: Any
) -> Store:
    """Open a store whose background only seals."""
    config = StoreConfig(
        ack="written",  # type: ignore[arg-type]
        min_free_bytes=0,
        delete_delay_ms=0,
        sync_interval_ms=NEVER_MS,
        log=LogConfig(
            segment_entries=segment_entries,
            segment_age_ms=NEVER_MS,
            **{"compression": "zstd", **settings},
        ),
    )
    with patch("timestone.store.Maintenance", Asleep):
        return Store(root, config, files=files, clock=StepClock())


def fill(log: Log, count: int, batch: int = 10) -> None:
    """Append, a batch at a time, and wait until all segments but the growing one are sealed."""
    end = log.end_offset + count
    while log.end_offset < end:
        offsets = range(log.end_offset, min(log.end_offset + batch, end))
        log.append_many(
            [payload_of(offset) for offset in offsets], topics=[f"t/{offset % 3}" for offset in offsets]
        )
    wait_for_seals(log)


def damage_of(store: Store, log: Log) -> list[UnprovenRange]:
    """Return the damage that the scrubber would find in all sealed segments."""
    found: list[UnprovenRange] = []
    for segment in log.segment_list.segments:
        if segment.trailer is not None:
            check = SegmentCheck(store.files, segment)
            for _ in check.slices(1 << 18):
                pass
            found += check.damaged
    return found


def forget_tail(store: Store) -> None:
    """Make all later reads use the files."""
    budget = store.tail_budget
    budget.limit_bytes = 0
    budget.lend(0)


def read_all(log: Log | LogView, *, offset: int | None = None, max_bytes: int = 1 << 20) -> dict[int, bytes]:
    """Return every record from an offset on, without those that raise CorruptRecord."""
    found: dict[int, bytes] = {}
    at = log.start_offset if offset is None else offset
    while at < log.end_offset:
        try:
            batch: Batch = log.read(at, max_bytes=max_bytes)
        except CorruptRecord as error:
            at = error.next_offset
            continue
        found.update({record.offset: record.payload for record in batch})
        at = batch.next_offset
    return found


def expected(start: int, end: int) -> dict[int, bytes]:
    """Return the records that `fill` has appended at these offsets."""
    return {offset: payload_of(offset) for offset in range(start, end)}
