"""Named readers: consumers, Spark queries and shared subscriptions, how far each is behind, and what it holds."""

from typing import Annotated, Literal

import msgspec

from ..http.sessions import Session
from ..reading.reader_lags import (
    ReaderPlace,
    behind_since_us,
    held_bytes,
    is_of_server,
    lag_series,
    reader_places,
    trend_per_s,
)
from ..sources import Sources

PAGE_MOST = 500
_TRENDS = 50
"""Rows of a page for which the trend is computed."""


class ReadersQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which readers, in which order."""

    log: Annotated[
        Annotated[str, msgspec.Meta(max_length=200)] | None, msgspec.Meta(description="only of this log")
    ] = None
    text: Annotated[str, msgspec.Meta(max_length=512, description="part of the name")] = ""
    sort: Literal["lag", "lag_s", "name", "committed"] = "lag"
    after: Annotated[int, msgspec.Meta(ge=0, description="`next` of the page before")] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MOST)] = 100


class PinRow(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a pin, 0 for none, and the size of the records that it holds; null if files cannot be read."""

    max_age_ms: int
    max_bytes: int
    held_bytes: int | None


class ReaderRow(msgspec.Struct, frozen=True, kw_only=True):
    """Named reader.

    trend_per_s: by how much the lag rises a second, over ten minutes; catch_up_s: time until it has caught up at that
    rate; null if it does not, or if there are no samples; behind_since_us: when its lag was last below a twentieth of
    what it is now. series: name of its lag for `series`."""

    place: ReaderPlace
    kind: str
    """`shared`: shared subscription of MQTT; `server`: one of the server itself; `reader`: any other."""
    trend_per_s: float | None
    catch_up_s: float | None
    behind_since_us: int | None
    pin: PinRow | None
    series: str


class Readers(msgspec.Struct, frozen=True, kw_only=True):
    """Page of readers."""

    readers: list[ReaderRow]
    total: int
    next: int | None


def readers(sources: Sources, session: Session, query: ReadersQuery) -> Readers:
    """Return the named readers, those furthest behind first."""
    found = [
        one
        for one in reader_places(sources.view)
        if query.log in (None, one[0].log) and query.text in one[0].name
    ]
    if query.sort == "lag_s":
        found.sort(key=lambda one: -(one[0].lag_s or 0.0))
    elif query.sort == "name":
        found.sort(key=lambda one: (one[0].name, one[0].log, one[0].partition))
    elif query.sort == "committed":
        found.sort(key=lambda one: one[0].committed_us)
    page = found[query.after : query.after + query.limit]
    rows = []
    for number, (place, commitment) in enumerate(page):
        trend = trend_per_s(sources.samples, place) if number < _TRENDS else None
        falling = trend is not None and trend < 0
        rows.append(
            ReaderRow(
                place=place,
                kind=kind_of(place.name),
                trend_per_s=trend,
                catch_up_s=0.0 if not place.lag else place.lag / -trend if falling and trend else None,
                behind_since_us=behind_since_us(sources.samples, place) if number < _TRENDS else None,
                pin=None
                if commitment.pin is None
                else PinRow(
                    max_age_ms=commitment.pin.max_age_ms,
                    max_bytes=commitment.pin.max_bytes,
                    held_bytes=held_bytes(sources.log(place.log, place.partition), commitment),
                ),
                series=lag_series(place.log, place.partition, place.name),
            )
        )
    end = query.after + len(page)
    return Readers(readers=rows, total=len(found), next=end if end < len(found) else None)


def kind_of(name: str) -> str:
    """Return what a reader is, by its name."""
    if name.startswith("$"):
        return "shared"
    return "server" if is_of_server(name) else "reader"
