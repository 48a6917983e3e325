"""The pipeline that turns a log into tables: its batches, tables and dead letters."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from ..http.sessions import Session
from ..problems import Problem
from ..reading.record_values import PREVIEW_BYTES, Value, value_of
from ..sources import Sources
from .overview import NoQuery

PAGE_MOST = 200


class TableRow(msgspec.Struct, frozen=True, kw_only=True):
    """Table of the pipeline."""

    table: str
    rows: int
    files: int
    file_bytes: int


class LogPosition(msgspec.Struct, frozen=True, kw_only=True):
    """How far the tables are in a log. lag: records that are durable in the log and not in the tables."""

    log: str
    partition: int
    offset: int
    synced_offset: int | None
    lag: int | None
    lag_s: float | None = None


class BatchRow(msgspec.Struct, frozen=True, kw_only=True):
    """Commit of the table bronze. kind: `write` for a batch, `optimize` for a compaction; rows: those that it added;
    took_s: from the begin of the work to the commit. Null in tables of earlier versions."""

    number: int
    time_us: int
    kind: str
    rows: int | None = None
    took_s: float | None = None


class Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """Pipeline. Times are null for never; is_exact: bronze = clean + dead letters + duplicates, counted in rows."""

    path: str
    tables: list[TableRow]
    logs: list[LogPosition]
    reasons: dict[str, int]
    """Dead letters by reason."""
    late: int
    batches: int
    last_commit_us: int | None
    newest_us: int | None
    closed_us: dict[str, int]
    """Length of a window in minutes, and the end of the last closed windows."""
    is_exact: bool
    is_reprocess_interrupted: bool
    history: list[BatchRow]
    """Last commits, the newest first."""


def pipeline(sources: Sources, session: Session, query: NoQuery) -> Pipeline:
    """Return the state of the pipeline whose tables the console was started with."""
    if sources.tables is None:
        raise Problem("not-found", "the console was started without the tables of a pipeline")
    return msgspec.convert(sources.tables.pipeline(), Pipeline)


class DeadLettersQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dead letters, the newest first."""

    reason: Annotated[
        Annotated[str, msgspec.Meta(max_length=1000)] | None, msgspec.Meta(description="only of this reason")
    ] = None
    after: Annotated[str, msgspec.Meta(max_length=200, description="`next` of the page before")] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MOST)] = 50


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """Message that is not valid. value: as in a record; null if this login may not read its topic; hex: its first 1,024
    bytes in hexadecimal."""

    log: str
    partition: int
    offset: int
    received_us: int
    topic: str | None
    reason: str
    bytes: int
    value: Value | None
    hex: str | None
    same_reason: int
    """Dead letters with this reason."""


class DeadLetters(msgspec.Struct, frozen=True, kw_only=True):
    """Page of dead letters. fields: names and types that a message should have."""

    letters: list[DeadLetter]
    reasons: dict[str, int]
    fields: dict[str, str]
    next: str | None


def pipeline_dead_letters(sources: Sources, session: Session, query: DeadLettersQuery) -> DeadLetters:
    """Return messages that are not valid, with their bytes and the reason."""
    if sources.tables is None:
        raise Problem("not-found", "the console was started without the tables of a pipeline")
    try:
        found = sources.tables.dead_letters(query.after, query.limit, query.reason)
    except ValueError as error:
        raise Problem("gone", str(error)) from None
    letters = found["letters"]
    readable = sources.may_read(session, {one["topic"] or "" for one in letters})
    return DeadLetters(
        letters=[
            _letter(one, found["reasons"], is_hidden=not readable[one["topic"] or ""]) for one in letters
        ],
        reasons=found["reasons"],
        fields=found["fields"],
        next=found["next"],
    )


def _letter(one: Mapping[str, Any], reasons: Mapping[str, int], *, is_hidden: bool) -> DeadLetter:
    value: bytes = one["value"]
    return DeadLetter(
        log=one["log"],
        partition=one["partition"],
        offset=one["offset"],
        received_us=one["received_us"],
        topic=one["topic"],
        reason=one["problem"],
        bytes=len(value),
        value=None if is_hidden else value_of(value, PREVIEW_BYTES),
        hex=None if is_hidden else value[:PREVIEW_BYTES].hex(),
        same_reason=reasons.get(one["problem"], 0),
    )
