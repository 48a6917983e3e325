"""Live data as server-sent events: figures of each second, the state of the server, and the records of one log as they
are appended."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec

from timestone.errors import TimestoneError
from timestone.view import LogView

from ..config import Role
from ..http.sessions import Session
from ..problems import Problem
from ..reading.record_search import Conditions, Damage, position, search_forwards
from ..reading.record_values import RecordRow, damaged_row, row_of
from ..sources import Sources
from .overview import Live, ServerState, live, server_state
from .records import Partition, Text

STREAM_COUNT = 8
"""Open streams of a session."""
ALL_STREAMS = 32
_TICK_S = 0.25
_FIGURES_TICKS = 4
_ROWS = 100
"""Records of a log in one tick; more are counted and left out."""
_LOG_COUNT = 100


class StreamQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to stream. Without a log: figures only."""

    log: Annotated[
        Annotated[str, msgspec.Meta(max_length=200)] | None,
        msgspec.Meta(description="also records of this log"),
    ] = None
    partition: Partition = 0
    from_: Annotated[Text | None, msgspec.Meta(description="first offset, as in records; the end")] = (
        msgspec.field(default=None, name="from")
    )
    filter: Annotated[tuple[Text, ...], msgspec.Meta(max_length=20)] = ()
    last_event_id: Annotated[
        Annotated[str, msgspec.Meta(max_length=20)] | None,
        msgspec.Meta(description="the header Last-Event-ID overrides it"),
    ] = None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Event `figures`: traffic of the last second, and how far the logs are."""

    now_us: int
    server: ServerState
    live: Live | None
    ends: dict[str, int]
    """End offsets of the first 100 logs, by `name/partition`."""


class Tail(msgspec.Struct, frozen=True, kw_only=True):
    """Event `records`: records that were appended. left_out: how many more there were, which `records` has."""

    records: list[RecordRow]
    left_out: int
    next: int
    lost: int = 0
    """Offsets that retention deleted before they were sent."""


def stream(sources: Sources, session: Session, query: StreamQuery) -> AsyncIterator[bytes]:
    """Stream events `figures` each second, and with a log `records`; an id is the offset to continue at."""
    if query.log is not None and session.role < Role.READER:
        raise Problem(
            "login-required" if session.role is Role.NONE else "not-allowed", "records need the role reader"
        )
    if session.streams >= STREAM_COUNT or sources.streams >= ALL_STREAMS:
        raise Problem(
            "too-many-requests", f"{STREAM_COUNT} streams of a session may be open, {ALL_STREAMS} of all"
        )
    log, at = None, 0
    if query.log is not None:
        log = sources.log(query.log, query.partition)
        start = query.last_event_id if query.last_event_id else query.from_
        at = position(log, start, None, log.end_offset)
    return _events(sources, session, query, log, at)


async def _events(
    sources: Sources, session: Session, query: StreamQuery, log: LogView | None, at: int
) -> AsyncIterator[bytes]:
    session.streams += 1
    sources.streams += 1
    try:
        yield b"retry: 1000\n\n"
        tick = 0
        while not sources.sessions.has_ended(session):
            if tick % _FIGURES_TICKS == 0:
                figures = await asyncio.to_thread(_figures, sources)
                yield _event("figures", figures, at if log is not None else None)
            if log is not None:
                tail = await asyncio.to_thread(_tail, sources, session, query, log, at)
                if tail is not None:
                    at = tail.next
                    yield _event("records", tail, at)
            tick += 1
            await asyncio.sleep(_TICK_S)
    finally:
        session.streams -= 1
        sources.streams -= 1


def _event(name: str, value: msgspec.Struct, number: int | None) -> bytes:
    # JSON of msgspec has no line ends.
    lines = [b"event: " + name.encode(), *([] if number is None else [b"id: %d" % number])]
    return b"\n".join([*lines, b"data: " + msgspec.json.encode(value), b"", b""])


def _figures(sources: Sources) -> Figures:
    status = sources.status()
    newest = sources.samples.last()
    return Figures(
        now_us=time.time_ns() // 1000,
        server=server_state(sources, newest[-1] if newest else None),
        live=live(sources),
        ends={}
        if status is None
        else {f"{one['log']}/{one['partition']}": one["end_offset"] for one in status["logs"][:_LOG_COUNT]},
    )


def _tail(sources: Sources, session: Session, query: StreamQuery, log: LogView, at: int) -> Tail | None:
    """Return what was appended from an offset on; None for nothing."""
    try:
        end = log.refresh()
    except (TimestoneError, OSError):
        return None  # the event `figures` says that the server has gone; a deleted log has no more records
    lost = max(0, log.start_offset - at)
    at = max(at, log.start_offset)
    if at >= end:
        return None
    left_out = max(0, end - at - _ROWS) if not query.filter else 0
    found = search_forwards(log, at + left_out, _ROWS, Conditions(query.filter))
    topics = {one.topic or "" for one in found.items if not isinstance(one, Damage)}
    readable = sources.may_read(session, topics)
    rows = [
        damaged_row(one.offset, one.reason, one.next_offset)
        if isinstance(one, Damage)
        else row_of(one, 1024, is_hidden=not readable[one.topic or ""])
        for one in found.items
    ]
    following = found.next if found.next is not None else end
    if not rows and not lost and query.filter:
        return Tail(records=[], left_out=0, next=following) if following > at else None
    return Tail(records=rows, left_out=left_out, next=following, lost=lost)
