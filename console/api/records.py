"""Records of a log: a page of them that match conditions, one with its whole value, and its bytes."""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from timestone.errors import CorruptRecord, OffsetOutOfRange
from timestone.record import Record
from timestone.view import LogView

from ..http.sessions import Session
from ..problems import Problem
from ..reading.record_search import Conditions, Damage, position, search_backwards, search_forwards
from ..reading.record_values import PREVIEW_BYTES, VALUE_BYTES, RecordRow, damaged_row, row_of
from ..sources import Sources
from .route import Reply

RECORDS_MOST = 500
_PAGE_BYTES = 3 << 20
LogName = Annotated[str, msgspec.Meta(min_length=1, max_length=200, description="name of a log")]
Partition = Annotated[int, msgspec.Meta(ge=0, le=999_999_999)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Text = Annotated[str, msgspec.Meta(max_length=1000)]


class RecordsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to read, and which records."""

    log: LogName
    partition: Partition = 0
    from_: Annotated[
        Text | None,
        msgspec.Meta(
            description="first offset; with order=newest the offset behind the first record. A number, earliest, "
            "latest, a time before now (-15m) or a time in ISO 8601"
        ),
    ] = msgspec.field(default=None, name="from")
    time: Annotated[int | None, msgspec.Meta(description="in place of from: a time in microseconds")] = None
    order: Annotated[Literal["oldest", "newest"], msgspec.Meta(description="which comes first")] = "oldest"
    filter: Annotated[
        tuple[Text, ...],
        msgspec.Meta(max_length=20, description="topic filters of MQTT, any of which matches"),
    ] = ()
    header: Annotated[Text | None, msgspec.Meta(description="name, or name=value, of a header")] = None
    text: Annotated[Text | None, msgspec.Meta(description="part of the payload")] = None
    path: Annotated[
        Text | None, msgspec.Meta(description="place in a JSON payload: names with dots between")
    ] = None
    value: Annotated[Text | None, msgspec.Meta(description="what is there, as JSON or text")] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=RECORDS_MOST)] = 100
    bytes: Annotated[int, msgspec.Meta(ge=16, le=VALUE_BYTES, description="most bytes of each value")] = (
        PREVIEW_BYTES
    )


class Records(msgspec.Struct, frozen=True, kw_only=True):
    """Page of records. next: value of `from` for the following page; null at the end of the log."""

    log: str
    partition: int
    start_offset: int
    end_offset: int
    records: list[RecordRow]
    next: int | None
    examined: int
    is_complete: bool
    """False if the search ended after two seconds: continue at `next`."""


def records(sources: Sources, session: Session, query: RecordsQuery) -> Records:
    """Return records of a log, from an offset, a time or the end, that match all conditions."""
    log = sources.log(query.log, query.partition)
    conditions = Conditions(query.filter, query.header, query.text, query.path, query.value)
    if conditions.test() is not None and not session.all_payloads:
        _check_all_readable(sources, session, log, query.filter)
    if query.order == "oldest":
        start = position(log, query.from_, query.time, log.start_offset)
        found = search_forwards(log, start, query.limit, conditions)
    else:
        before = position(log, query.from_, query.time, log.end_offset)
        found = search_backwards(log, before, query.limit, conditions)
    rows, next_offset = _rows(sources, session, found.items, query.bytes), found.next
    if len(rows) < len(found.items):
        following = found.items[len(rows)].offset
        next_offset = following if query.order == "oldest" else following + 1
    return Records(
        log=log.name,
        partition=log.partition,
        start_offset=log.start_offset,
        end_offset=log.end_offset,
        records=rows,
        next=next_offset,
        examined=found.examined,
        is_complete=found.is_complete,
    )


def _check_all_readable(sources: Sources, session: Session, log: LogView, filters: Sequence[str]) -> None:
    """Raise Problem unless the caller may read all that a search by content looks at: what it finds says what is in a
    record."""
    asked = list(filters) or ["#"]
    if not all(sources.may_read(session, asked).values()):
        raise Problem(
            "not-allowed", f"a search by content of {', '.join(asked)} needs the right to read all of it"
        )


def _rows(
    sources: Sources, session: Session, items: Sequence[Record | Damage], limit: int
) -> list[RecordRow]:
    """Return as many rows as fit into a reply."""
    topics = {one.topic or "" for one in items if isinstance(one, Record)}
    readable = sources.may_read(session, topics)
    rows, size = [], 0
    for one in items:
        if isinstance(one, Damage):
            rows.append(damaged_row(one.offset, one.reason, one.next_offset))
            continue
        row = row_of(one, limit, is_hidden=not readable[one.topic or ""])
        size += 300 + len(row.topic or "") + len(row.value.text if row.value else "")
        size += sum(100 + len(header.name) + len(header.value) for header in row.headers)
        if size > _PAGE_BYTES and rows:
            break
        rows.append(row)
    return rows


class RecordQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One record."""

    log: LogName
    partition: Partition
    offset: Offset


class OneRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Record with up to 64 KiB of its value."""

    log: str
    partition: int
    start_offset: int
    end_offset: int
    record: RecordRow


def record(sources: Sources, session: Session, query: RecordQuery) -> OneRecord:
    """Return one record with up to 64 KiB of its value."""
    log = sources.log(query.log, query.partition)
    try:
        found = log.record(query.offset)
    except CorruptRecord as error:
        row = damaged_row(query.offset, error.reason, error.next_offset)
    except OffsetOutOfRange as error:
        raise Problem("not-found", str(error), start=error.start, end=error.end) from None
    else:
        row = row_of(found, VALUE_BYTES, is_hidden=not _may_read(sources, session, found))
    return OneRecord(
        log=log.name,
        partition=log.partition,
        start_offset=log.start_offset,
        end_offset=log.end_offset,
        record=row,
    )


def record_raw(sources: Sources, session: Session, query: RecordQuery) -> Reply:
    """Return the payload of one record as a file."""
    log = sources.log(query.log, query.partition)
    try:
        found = log.record(query.offset)
    except CorruptRecord as error:
        raise Problem("damaged", str(error)) from None
    except OffsetOutOfRange as error:
        raise Problem("not-found", str(error), start=error.start, end=error.end) from None
    if not _may_read(sources, session, found):
        raise Problem("not-allowed", "this login may not read the topic of the record")
    name = f"{log.name}-{log.partition}-{query.offset}.bin"
    return Reply(found.payload, "application/octet-stream", name)


def _may_read(sources: Sources, session: Session, found: Record) -> bool:
    topic = found.topic or ""
    return sources.may_read(session, [topic])[topic]
