"""Stores with something in them, for tests that read."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import timestone
from timestone import LogConfig

LOG = "telemetry"


def value_of(offset: int) -> bytes:
    """What `fill` appends at an offset."""
    return b"record %d" % offset


def fill(
    path: Path,
    count: int,
    *,
    log: str = LOG,
    partition: int = 0,
    topics: int = 5,
    segment_entries: int = 1000,
) -> None:
    """Append `count` records, synced, to a log of a store that nobody has open; topics are `devices/<n>/state` in
    turn."""
    with timestone.open(path) as store:
        config = LogConfig(segment_entries=segment_entries)
        there = store.log(log, partition, config=config)
        first = there.end_offset
        for start in range(first, first + count, segment_entries):
            offsets = range(start, min(start + segment_entries, first + count))
            there.append_many(
                [value_of(offset) for offset in offsets],
                topics=[f"devices/{offset % topics}/state" for offset in offsets],
            )


def drop_first_segment(path: Path, log: str = LOG, partition: int = 0) -> int:
    """What retention does: the oldest segment is gone. Returns the offset at which the log now starts."""
    folder = path / f"{log}-{partition}"
    first, second, *_ = sorted(folder.glob("*.segment"))
    first.with_suffix(".index").unlink()
    first.unlink()
    return int(second.stem)


def iso(time_us: int) -> str:
    """A time of the engine as text, to the microsecond."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)).isoformat()
