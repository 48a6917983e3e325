"""How far named readers are behind, in offsets and in seconds, and when they will have caught up."""

import time

import msgspec

from timestone.errors import TimestoneError
from timestone.reading.named_readers import Commitment, ReaderId
from timestone.reading.segment_list import SegmentList
from timestone.view import LogView, StoreView

from .samples import Samples

_BEHIND_SPANS_US = (3_600_000_000, 86_400_000_000, 604_800_000_000)
_BEHIND_POINTS = 120
_LOW = 0.05
_TREND_POINTS, _FALLING_POINTS = 60, 3
TREND_US = 600_000_000
"""Span over which a trend is measured."""


class ReaderPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Place of a named reader. lag_s: age of the oldest record that it has not read; 0 if there is none."""

    log: str
    partition: int
    name: str
    offset: int
    end_offset: int
    lag: int
    lag_s: float | None
    missed: int
    committed_us: int


def time_at(log: LogView, offset: int) -> int | None:
    """Return when the first record at or after an offset was appended, in microseconds; None if there is none."""
    if not log.start_offset <= offset < log.end_offset:
        return None
    try:
        return log.look_up(
            lambda segments: (
                None
                if (segment := segments.locate(offset)) is None
                else segment.timestamp_at(max(0, offset - segment.base_offset))
            )
        )
    except (TimestoneError, OSError, IndexError):
        return None


def place_of(log: LogView, reader: ReaderId, found: Commitment) -> ReaderPlace:
    """Return the place of a reader in its log."""
    start, end = log.start_offset, log.end_offset
    following = max(found.offset, start)
    oldest_us = time_at(log, following) if following < end else None
    now_us = time.time_ns() // 1000
    return ReaderPlace(
        log=reader.log,
        partition=reader.partition,
        name=reader.name,
        offset=found.offset,
        end_offset=end,
        lag=max(0, end - following),
        lag_s=0.0 if following >= end else None if oldest_us is None else max(0, now_us - oldest_us) / 1e6,
        missed=max(0, start - found.offset),
        committed_us=found.committed_us,
    )


def held_bytes(log: LogView, found: Commitment) -> int | None:
    """Return the size of the records that a pin keeps from retention: those from the place of its reader on, before
    compression. None if files of the log cannot be read."""
    first, end = max(found.offset, log.start_offset), log.end_offset

    def added(segments: SegmentList) -> int:
        return sum(one.bytes_between(first, end) for one in segments.segments if one.end_offset > first)

    try:
        return log.look_up(added)
    except (TimestoneError, OSError):
        return None


def reader_places(view: StoreView) -> list[tuple[ReaderPlace, Commitment]]:
    """Return the places of all named readers of logs that can be read, those furthest behind first."""
    logs: dict[tuple[str, int], LogView | None] = {}
    found = []
    for reader, commitment in view.readers().items():
        key = (reader.log, reader.partition)
        if key not in logs:
            try:
                logs[key] = view.log(*key)
            except (TimestoneError, OSError):
                logs[key] = None
        log = logs[key]
        if log is not None:
            found.append((place_of(log, reader, commitment), commitment))
    found.sort(key=lambda one: (-one[0].lag, one[0].log, one[0].partition, one[0].name))
    return found


def furthest_behind(view: StoreView) -> ReaderPlace | None:
    """Return the place of the reader with the largest lag, without those of the server itself; None if none is
    behind."""
    try:
        places = (place for place, _ in reader_places(view))
        return next((place for place in places if place.lag and not is_of_server(place.name)), None)
    except (TimestoneError, OSError):
        return None


def is_of_server(name: str) -> bool:
    """Return whether a named reader belongs to a front, which commits now and then only."""
    return name.startswith("mqtt.")


def trend_per_s(samples: Samples, place: ReaderPlace) -> float | None:
    """Return by how much the lag of a reader rises a second, over the last ten minutes of samples, or since its highest
    lag in them if it has fallen since; None if unknown."""
    now_us = time.time_ns() // 1000
    name = lag_series(place.log, place.partition, place.name)
    points = [
        (one.time_us, one.values[name])
        for one in samples.between(now_us - TREND_US, now_us, _TREND_POINTS)
        if name in one.values and one.time_us >= now_us - TREND_US
    ]
    highest = max(range(len(points)), key=lambda number: points[number][1], default=0)
    if len(points) - highest > _FALLING_POINTS:
        points = points[highest:]
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        return None
    return (points[-1][1] - points[0][1]) / ((points[-1][0] - points[0][0]) / 1e6)


def behind_since_us(samples: Samples, place: ReaderPlace) -> int | None:
    """Return since when a reader falls behind: when its lag was last below a twentieth of what it is now. Looked for in
    the last hour, day and week of samples; the oldest sample of the week if it was never below. None for a reader that
    is not behind, or without samples."""
    if not place.lag:
        return None
    now_us = time.time_ns() // 1000
    name = lag_series(place.log, place.partition, place.name)
    found: int | None = None
    for span_us in _BEHIND_SPANS_US:
        points = [
            (one.time_us, one.values[name])
            for one in samples.between(now_us - span_us, now_us, _BEHIND_POINTS)
            if name in one.values
        ]
        low = [number for number, (_, lag) in enumerate(points) if lag < place.lag * _LOW]
        if low:
            return points[min(low[-1] + 1, len(points) - 1)][0]
        if points:
            found = points[0][0]
    return found


def lag_series(log: str, partition: int, name: str) -> str:
    """Return the name of the lag of a reader in a sample."""
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'timestone_reader_lag{{log="{log}",partition="{partition}",reader="{escaped}"}}'
