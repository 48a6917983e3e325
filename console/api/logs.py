"""Logs of the store: their settings and sizes, their segments as rows and as a map, and offsets by time."""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from timestone.errors import TimestoneError
from timestone.format.names import is_server_log
from timestone.repair.inspection_report import LogReport, SegmentReport

from ..http.sessions import Session
from ..problems import Problem
from ..reading.reader_lags import time_at
from ..reading.samples import Change
from ..reading.segment_map import TROUBLE, Cell, cells, gaps, is_compressed
from ..sources import Sources
from .records import LogName, Offset, Partition

PAGE_MOST = 500
SEGMENTS_MOST = 5000
_BEFORE = 2
"""Segments before the one that is asked for."""
_DAMAGED_MOST = 100
Cursor = Annotated[
    Annotated[str, msgspec.Meta(max_length=1000)] | None,
    msgspec.Meta(description="`next` of the page before"),
]


class LogsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which logs."""

    text: Annotated[str, msgspec.Meta(max_length=200, description="part of the name")] = ""
    server: Annotated[bool, msgspec.Meta(description="also the logs in which the server records figures")] = (
        True
    )
    after: Cursor = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MOST)] = 100


class LogRow(msgspec.Struct, frozen=True, kw_only=True):
    """Log. Numbers are null if it cannot be read; `error` says why."""

    log: str
    partition: int
    is_server_log: bool
    start_offset: int | None = None
    end_offset: int | None = None
    synced_offset: int | None = None
    oldest_us: int | None = None
    newest_us: int | None = None
    topics: int | None = None
    segments: int | None = None
    appended_per_s: float | None = None
    """Records appended a second, by the last two samples."""
    appended_bytes_per_s: float | None = None
    error: str | None = None


class Logs(msgspec.Struct, frozen=True, kw_only=True):
    """Page of logs, by name and partition."""

    logs: list[LogRow]
    total: int
    next: str | None


def logs(sources: Sources, session: Session, query: LogsQuery) -> Logs:
    """Return the logs of the store."""
    names = [one for one in sources.view.log_names(server=query.server) if query.text in one[0]]
    following = names
    if query.after is not None:
        after = _parsed(query.after)
        following = [one for one in names if one > after]
    page = following[: query.limit]
    change = _last_change(sources)
    return Logs(
        logs=[log_row(sources, *one, change) for one in page],
        total=len(names),
        next=f"{page[-1][0]}/{page[-1][1]}" if len(page) < len(following) else None,
    )


def _last_change(sources: Sources) -> Change | None:
    """Return the change between the last two samples; None if there are none of one start of the server."""
    samples = sources.samples.last(2)
    if len(samples) < 2 or samples[0].started_us != samples[1].started_us:
        return None
    return Change(*samples)


def _parsed(cursor: str) -> tuple[str, int]:
    name, slash, partition = cursor.rpartition("/")
    if not slash or not partition.isascii() or not partition.isdigit() or len(partition) > 9:
        raise Problem("invalid-request", "invalid after: expected `next` of the page before")
    return name, int(partition)


def log_row(sources: Sources, name: str, partition: int, change: Change | None) -> LogRow:
    """Return a log as a row."""
    labels = f'{{log="{name}",partition="{partition}"}}'
    try:
        log = sources.view.log(name, partition)
        start, end = log.start_offset, log.end_offset
        return LogRow(
            log=name,
            partition=partition,
            is_server_log=is_server_log(name),
            start_offset=start,
            end_offset=end,
            synced_offset=log.synced_offset,
            oldest_us=time_at(log, start),
            newest_us=time_at(log, end - 1) if end > start else None,
            topics=len(log.topics),
            segments=len(log.segment_list.segments),
            appended_per_s=change.rate(f"timestone_log_appended_records_total{labels}") if change else None,
            appended_bytes_per_s=change.rate(f"timestone_log_appended_bytes_total{labels}")
            if change
            else None,
        )
    except (TimestoneError, OSError) as error:
        return LogRow(log=name, partition=partition, is_server_log=is_server_log(name), error=str(error))


class LogQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One log."""

    log: LogName
    partition: Partition = 0


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """Setting of a log. value: as `timestone configure` shows it."""

    name: str
    value: int | bool | str
    default: int | bool | str
    help: str


class OneLog(msgspec.Struct, frozen=True, kw_only=True):
    """Log with its settings, which are empty without a catalogue, and what is wrong with it."""

    row: LogRow
    id: str
    records: int | None
    bytes: int | None
    stored_bytes: int | None
    settings: list[Setting]
    states: dict[str, int]
    """Number of segments by state."""
    missing: list[tuple[int, int]]
    """Offsets [first, end) that no segment holds, without intended gaps."""
    put_aside: list[str]
    """Files that a recovery has put aside."""
    error: str


def log(sources: Sources, session: Session, query: LogQuery) -> OneLog:
    """Return one log: its settings, sizes and what is wrong with it."""
    sources.log(query.log, query.partition)
    report = sources.inspected(query.log, query.partition)
    states: dict[str, int] = {}
    for segment in report.segments:
        states[segment.state] = states.get(segment.state, 0) + 1
    return OneLog(
        row=log_row(sources, query.log, query.partition, _last_change(sources)),
        id=f"{report.id:016x}",
        records=report.records,
        bytes=report.bytes,
        stored_bytes=report.stored_bytes,
        settings=[Setting(**one) for one in sources.settings_of(query.log, query.partition)],
        states=states,
        missing=list(report.missing),
        put_aside=list(report.put_aside[:_DAMAGED_MOST]),
        error=report.error,
    )


class SegmentsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Segments of a log."""

    log: LogName
    partition: Partition = 0
    order: Annotated[
        Literal["offset", "trouble"],
        msgspec.Meta(description="by offset, or first what cannot be read whole, then the newest"),
    ] = "offset"
    at: Annotated[
        Offset | None, msgspec.Meta(description="from shortly before the segment with this offset")
    ] = None
    after: Annotated[int | None, msgspec.Meta(description="`next` of the page before")] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=SEGMENTS_MOST)] = SEGMENTS_MOST


class SegmentRow(msgspec.Struct, frozen=True, kw_only=True):
    """Segment. state: `sealed`, `closed`, `unclosed` (it grows, or its owner was killed), `torn`, `damaged`,
    `orphan`."""

    base_offset: int
    next_offset: int
    records: int
    bytes: int
    stored_bytes: int
    index_bytes: int
    first_timestamp_us: int
    last_timestamp_us: int
    state: str
    is_growing: bool
    is_compressed: bool
    is_compacted: bool
    has_side_file: bool
    removed: int
    topics: int | None
    damaged_offsets: list[int]
    damaged_count: int
    lost_records: int
    reason: str
    held_by: list[str]
    """Named readers whose pin keeps it."""


class Segments(msgspec.Struct, frozen=True, kw_only=True):
    """Segments of a log. total: of the whole log."""

    log: str
    partition: int
    start_offset: int
    end_offset: int
    total: int
    segments: list[SegmentRow]
    gaps: list[tuple[int, int]]
    """Offsets [first, end) between segments."""
    next: int | None


def segments(sources: Sources, session: Session, query: SegmentsQuery) -> Segments:
    """Return segments of a log."""
    sources.log(query.log, query.partition)
    report = sources.inspected(query.log, query.partition)
    following = _ordered(report.segments, query)
    page = following[: query.limit]
    holders = sources.holders(query.log, query.partition)
    side_files = sources.side_files(query.log, query.partition)
    growing = _growing(sources, report)
    is_more = len(page) < len(following) and query.order == "offset"
    return Segments(
        log=report.log,
        partition=report.partition,
        start_offset=report.start_offset,
        end_offset=report.end_offset,
        total=len(report.segments),
        segments=[
            _segment_row(
                one,
                is_growing=one is growing,
                held_by=[name for name, offset in holders if one.next_offset > offset],
                has_side_file=one.base_offset in side_files,
            )
            for one in page
        ],
        gaps=gaps(report.segments),
        next=page[-1].base_offset if is_more else None,
    )


def _ordered(found: Sequence[SegmentReport], query: SegmentsQuery) -> Sequence[SegmentReport]:
    """Return the segments that a query asks for, without its limit. Raises Problem."""
    if query.order == "trouble":
        if query.at is not None or query.after is not None:
            raise Problem("invalid-request", "at and after go with the order of offsets")
        trouble = [one for one in found if one.state in TROUBLE]
        return trouble + [one for one in reversed(found) if one.state not in TROUBLE]
    first = 0
    if query.at is not None:
        first = sum(one.next_offset <= query.at for one in found[:-1]) - _BEFORE
    following = found[max(0, first) :]
    return [one for one in following if query.after is None or one.base_offset > query.after]


def _growing(sources: Sources, report: LogReport) -> SegmentReport | None:
    newest = report.segments[-1] if report.segments else None
    is_growing = newest is not None and newest.state == "unclosed" and sources.is_owned()
    return newest if is_growing else None


def _segment_row(
    one: SegmentReport, *, is_growing: bool, held_by: list[str], has_side_file: bool
) -> SegmentRow:
    return SegmentRow(
        base_offset=one.base_offset,
        next_offset=one.next_offset,
        records=one.records,
        bytes=one.bytes,
        stored_bytes=one.stored_bytes,
        index_bytes=one.index_bytes,
        first_timestamp_us=one.first_timestamp_us,
        last_timestamp_us=one.last_timestamp_us,
        state=one.state,
        is_growing=is_growing,
        is_compressed=is_compressed(one),
        is_compacted=one.removed > 0,
        has_side_file=has_side_file,
        removed=one.removed,
        topics=one.topics,
        damaged_offsets=list(one.damaged_offsets[:_DAMAGED_MOST]),
        damaged_count=len(one.damaged_offsets),
        lost_records=one.lost_records,
        reason=one.reason,
        held_by=held_by,
    )


class MapQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Map of the segments of a log."""

    log: LogName
    partition: Partition = 0


class SegmentMap(msgspec.Struct, frozen=True, kw_only=True):
    """Map of the segments of a log in the order of their offsets."""

    start_offset: int
    end_offset: int
    segments: int
    cells: list[Cell]


def segment_map(sources: Sources, session: Session, query: MapQuery) -> SegmentMap:
    """Return the map of the segments of a log: at most about 300 cells, and those beside gaps."""
    sources.log(query.log, query.partition)
    report = sources.inspected(query.log, query.partition)
    return SegmentMap(
        start_offset=report.start_offset,
        end_offset=report.end_offset,
        segments=len(report.segments),
        cells=list(cells(report.segments, _growing(sources, report))),
    )


class OffsetQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A time, or an offset."""

    log: LogName
    partition: Partition = 0
    time: Annotated[int | None, msgspec.Meta(description="in microseconds: which record came then?")] = None
    offset: Annotated[
        Offset | None, msgspec.Meta(description="when did the record with this offset come?")
    ] = None


class OffsetAt(msgspec.Struct, frozen=True, kw_only=True):
    """Offset and when its record was appended; null at the end of the log."""

    offset: int
    timestamp_us: int | None
    start_offset: int
    end_offset: int


def offset(sources: Sources, session: Session, query: OffsetQuery) -> OffsetAt:
    """Return the first record at or after a time, or the time of an offset."""
    if (query.time is None) == (query.offset is None):
        raise Problem("invalid-request", "expected either time or offset")
    log = sources.log(query.log, query.partition)
    found = log.offset_at(query.time) if query.time is not None else query.offset
    assert found is not None
    return OffsetAt(
        offset=found,
        timestamp_us=time_at(log, found),
        start_offset=log.start_offset,
        end_offset=log.end_offset,
    )
