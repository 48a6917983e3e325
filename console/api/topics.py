"""Topics of a log: a level of the tree with its share of the traffic, search, and the values of one topic."""

from typing import Annotated, Literal

import msgspec

from ..http.sessions import Session
from ..problems import Problem
from ..reading.record_values import RecordRow
from ..sources import Sources
from .records import LogName, Partition

PAGE_MOST = 500
Text = Annotated[str, msgspec.Meta(max_length=65_535)]


class TopicsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A level of the tree."""

    log: LogName
    partition: Partition = 0
    under: Annotated[
        Text, msgspec.Meta(description="levels above, as in `site/1`; empty for the first level")
    ] = ""
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
    raise Problem("not-implemented", "topics are not implemented yet")


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
    raise Problem("not-implemented", "topics are not implemented yet")


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
    """Values of a topic, the newest first. is_retained: whether the server keeps its last value for new subscribers;
    null without a server. numbers: places of numbers in the newest JSON value, for charts."""

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
    raise Problem("not-implemented", "topics are not implemented yet")


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
    raise Problem("not-implemented", "topics are not implemented yet")
