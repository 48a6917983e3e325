"""Topics of a log: a level of the tree with its share of the traffic, search, and the values of one topic."""

import time
from typing import Annotated, Literal

import msgspec

from timestone.errors import InvalidName, TimestoneError
from timestone.filters import validate_filter
from timestone.record import Record
from timestone.view import LogView

from ..http.sessions import Session
from ..problems import Problem
from ..reading.record_search import (
    SEARCH_S,
    Conditions,
    Damage,
    numbers_in,
    search_backwards,
    search_forwards,
)
from ..reading.record_values import PREVIEW_BYTES, VALUE_BYTES, RecordRow, damaged_row, row_of
from ..sources import Sources
from .records import LogName, Partition

PAGE_MOST = 500
_NUMBERS_MOST = 20
_RETAINED_SPACE = "mqtt.retained"
"""Documents of retained messages, by topic."""
_VALUES_MOST = 2000
"""Values of a topic that a chart reads, the newest of a span."""
Text = Annotated[str, msgspec.Meta(max_length=65_535)]


class TopicsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A level of the tree."""

    log: LogName
    partition: Partition = 0
    under: Annotated[
        Text | None,
        msgspec.Meta(
            description="levels above, as in `site/1`; without it the first level; empty: below an empty one"
        ),
    ] = None
    sort: Literal["name", "records", "bytes", "records_per_s", "last_us"] = "name"
    after: Annotated[int, msgspec.Meta(ge=0, description="`next` of the page before")] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MOST)] = 100


class TopicNode(msgspec.Struct, frozen=True, kw_only=True):
    """Level of the tree with all topics below it.

    Counts are those of the followed part of the log; share: of the bytes of all topics there."""

    name: str
    """Its own level."""
    path: str
    """All levels."""
    is_topic: bool
    topics_below: int
    records: int
    bytes: int
    records_per_s: float | None
    share: float
    last_us: int | None
    last_offset: int | None


class Topics(msgspec.Struct, frozen=True, kw_only=True):
    """Page of a level. followed: `all` records from `from_offset` on are counted, or a `sample` of them."""

    log: str
    partition: int
    under: str
    topics: int
    """In the log."""
    nodes: list[TopicNode]
    total: int
    next: int | None
    followed: str
    from_offset: int
    to_offset: int
    from_us: int | None


def topics(sources: Sources, session: Session, query: TopicsQuery) -> Topics:
    """Return a level of the tree of topics, with the share of traffic below each."""
    table = sources.topics.of(sources.log(query.log, query.partition))
    table.follow()
    nodes, count = table.level(query.under, query.sort, query.after, query.limit)
    whole = table.total_bytes
    end = query.after + len(nodes)
    return Topics(
        log=query.log,
        partition=query.partition,
        under=query.under or "",
        topics=len(table.log.topics),
        nodes=[TopicNode(**node._asdict(), share=node.bytes / whole if whole else 0.0) for node in nodes],
        total=count,
        next=end if end < count else None,
        followed="sample" if table.left_out else "all",
        from_offset=table.from_offset,
        to_offset=table.to_offset,
        from_us=table.from_us,
    )


class TopicSearchQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Topics by filter or by part of their name."""

    log: LogName
    partition: Partition = 0
    filter: Annotated[Text | None, msgspec.Meta(description="topic filter of MQTT")] = None
    text: Annotated[Text, msgspec.Meta(description="part of the name")] = ""
    sort: Literal["name", "records", "bytes", "records_per_s", "last_us"] = "name"
    after: Annotated[int, msgspec.Meta(ge=0, description="`next` of the page before")] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MOST)] = 100


class TopicRow(msgspec.Struct, frozen=True, kw_only=True):
    """Topic with the counts of the followed part of the log."""

    topic: str
    records: int
    bytes: int
    records_per_s: float | None
    last_us: int | None
    last_offset: int | None


class TopicSearch(msgspec.Struct, frozen=True, kw_only=True):
    """Page of topics."""

    topics: list[TopicRow]
    total: int
    next: int | None


def topics_search(sources: Sources, session: Session, query: TopicSearchQuery) -> TopicSearch:
    """Return the topics that match a filter and have a text in their name."""
    table = sources.topics.of(sources.log(query.log, query.partition))
    table.follow()
    ids = table.ids
    if query.filter is not None:
        try:
            validate_filter(query.filter)
        except InvalidName as error:
            raise Problem("invalid-request", str(error)) from None
        ids = table.matching(query.filter)
    if query.text:
        ids = table.with_text(query.text, ids)
    page = table.chosen(ids, query.sort, query.after, query.limit)
    end = query.after + len(page)
    return TopicSearch(
        topics=[
            TopicRow(
                topic=one.path,
                records=one.records,
                bytes=one.bytes,
                records_per_s=one.records_per_s,
                last_us=one.last_us,
                last_offset=one.last_offset,
            )
            for one in page
        ],
        total=len(ids),
        next=end if end < len(ids) else None,
    )


class TopicValueQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Values of a topic, the newest first."""

    log: LogName
    partition: Partition = 0
    topic: Text
    before: Annotated[
        Annotated[int, msgspec.Meta(ge=0)] | None, msgspec.Meta(description="`next` of the page before")
    ] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 20


class TopicValues(msgspec.Struct, frozen=True, kw_only=True):
    """Values of a topic, the newest first. is_retained: whether the server keeps a value for new subscribers, as of its
    last save, a second ago at most; null if that cannot be read. numbers: places of numbers in the newest JSON value,
    for charts."""

    topic: str
    log: str
    partition: int
    values: list[RecordRow]
    next: int | None
    is_complete: bool
    is_retained: bool | None
    numbers: list[str]


def topics_value(sources: Sources, session: Session, query: TopicValueQuery) -> TopicValues:
    """Return the last values of a topic."""
    log = sources.log(query.log, query.partition)
    table = sources.topics.of(log)
    table.follow()
    newest = table.last_offset(query.topic)
    before = query.before
    if before is None:
        before = log.end_offset if newest is None else newest + 1
    is_readable = sources.may_read(session, [query.topic])[query.topic]
    found = search_backwards(log, before, query.limit, Conditions(topics=(_plain(query.topic),)))
    rows = [
        damaged_row(one.offset, one.reason, one.next_offset)
        if isinstance(one, Damage)
        else row_of(one, VALUE_BYTES if number == 0 else PREVIEW_BYTES, is_hidden=not is_readable)
        for number, one in enumerate(found.items)
    ]
    first = next((one for one in found.items if isinstance(one, Record)), None)
    return TopicValues(
        topic=query.topic,
        log=log.name,
        partition=log.partition,
        values=rows,
        next=found.next,
        is_complete=found.is_complete,
        is_retained=_is_retained(sources, query.topic),
        numbers=[path for path, _ in _numbers(first)][:_NUMBERS_MOST]
        if first is not None and is_readable
        else [],
    )


def _is_retained(sources: Sources, topic: str) -> bool | None:
    try:
        return sources.view.document(_RETAINED_SPACE, topic) is not None
    except (TimestoneError, OSError):
        return None


def _plain(topic: str) -> str:
    """Return a topic as a filter that matches only it. Raises Problem."""
    if "+" in topic or "#" in topic:
        raise Problem("invalid-request", "invalid topic: expected one topic, got a filter")
    return topic


def _numbers(record: Record) -> list[tuple[str, float]]:
    try:
        return list(numbers_in(msgspec.json.decode(record.payload)))
    except (msgspec.DecodeError, RecursionError, OverflowError):
        return []


class TopicSeriesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number in the JSON values of a topic over time."""

    log: LogName
    partition: Partition = 0
    topic: Text
    path: Annotated[Text, msgspec.Meta(description="place of the number; empty for the value itself")] = ""
    from_: Annotated[int, msgspec.Meta(description="start in microseconds")] = msgspec.field(name="from")
    to: int
    points: Annotated[int, msgspec.Meta(ge=2, le=500)] = 240


class TopicSeries(msgspec.Struct, frozen=True, kw_only=True):
    """Number of a topic over time. is_sampled: whether values were left out."""

    times_us: list[int]
    offsets: list[int]
    values: list[float]
    is_sampled: bool


def topics_series(sources: Sources, session: Session, query: TopicSeriesQuery) -> TopicSeries:
    """Return a number in the values of a topic over time."""
    if not sources.may_read(session, [query.topic])[query.topic]:
        raise Problem("not-allowed", "this login may not read the topic")
    log = sources.log(query.log, query.partition)
    table = sources.topics.of(log)
    table.follow()
    newest = table.last_offset(query.topic)
    end = log.offset_at(query.to + 1)
    if newest is not None:
        end = min(end, newest + 1)
    conditions = Conditions(topics=(_plain(query.topic),))
    found = search_backwards(log, end, _VALUES_MOST, conditions)
    items = found.items[::-1]
    is_cut = found.next is not None and (not items or _time(items[0]) > query.from_)
    if is_cut:
        items = _spread(log, query, end, conditions)
    points = [
        (one.timestamp_us, one.offset, value)
        for one in items
        if isinstance(one, Record) and one.timestamp_us >= query.from_
        for path, value in _numbers(one)
        if path == query.path
    ]
    distance = max(1, -(-len(points) // query.points))
    chosen = points[::-distance][::-1]
    return TopicSeries(
        times_us=[at_us for at_us, _, _ in chosen],
        offsets=[offset for _, offset, _ in chosen],
        values=[value for _, _, value in chosen],
        is_sampled=distance > 1 or is_cut,
    )


def _time(one: Record | Damage) -> int:
    return one.timestamp_us if isinstance(one, Record) else 0


def _spread(log: LogView, query: TopicSeriesQuery, end: int, conditions: Conditions) -> list[Record | Damage]:
    """Return records of a topic at about equal times: the first one in each of so many parts of the span."""
    until_s = time.monotonic() + SEARCH_S
    items: list[Record | Damage] = []
    at = 0
    for number in range(query.points):
        time_us = query.from_ + (query.to - query.from_) * number // query.points
        at = max(at, log.offset_at(time_us))
        found = search_forwards(log, at, 1, conditions)
        if not found.items or found.items[0].offset >= end or time.monotonic() > until_s:
            break
        items.append(found.items[0])
        at = found.items[0].offset + 1
    return items
