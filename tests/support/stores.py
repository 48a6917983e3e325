"""Stores with something in them, for tests that read."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import timestone
from timestone import LogConfig

LOG = "telemetry"


def value_of(offset: int) -> bytes:
    """Return the payload that `fill` appends at an offset."""
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
    """Append `count` records, synced, to a log of a store without an owner, and seal them; topics are
    `devices/<n>/state` in turn."""
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
        there.roll()


def drop_first_segment(path: Path, log: str = LOG, partition: int = 0) -> int:
    """Remove the oldest segment, as retention does. Return the offset at which the log now starts."""
    folder = path / f"{log}-{partition}"
    first, second, *_ = sorted(folder.glob("*.segment"))
    first.with_suffix(".index").unlink()
    first.unlink()
    return int(second.stem)


def iso(time_us: int) -> str:
    """Return a time of the engine as text, to the microsecond."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)).isoformat()
