"""Filters of a query, as `DefaultSource.java` adds them to the options of a single scan: which records it can skip.

    [["offset", ">=", [5]], ["timestamp", "<", [1767225600000000]], ["topic", "prefix", ["plant/"]]]

Each row of the result satisfies all of them. Spark applies them itself, so that what is read may be more. Timestamps
are microseconds since 1970."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from pyspark_timestone.offsets import OffsetRange
from timestone.errors import InvalidName
from timestone.filters import topic_matches, validate_topics

OPTION = "pushedFilters"
"""Not for users: `load()` refuses it."""

_TOPICS_MOST = 1000
"""To look for more topics takes longer than to read the records."""


class Times(Protocol):
    """Log, as far as times are looked up in it."""

    def offset_at(self, timestamp_us: int, /) -> int: ...


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """Conditions on columns of the source: column, comparison and values."""

    conditions: tuple[tuple[str, str, tuple[Any, ...]], ...] = ()

    @classmethod
    def from_text(cls, text: str, *, kafka_layout: bool) -> Self:
        """kafka_layout: the column `topic` is the log."""
        named = {"topic": "log"} if kafka_layout else {}
        return cls(
            tuple(
                (named.get(column, column), comparison, tuple(values))
                for column, comparison, values in json.loads(text)
            )
        )

    def topics(self, chosen: Sequence[str]) -> tuple[str, ...] | None:
        """Return the topic filters that leave out the most, within the filters `chosen`, all if there are none. None
        if no record can match."""
        for values in self._of("topic", "in"):
            if len(values) <= _TOPICS_MOST and _are_topics(values):
                found = tuple(
                    one for one in values if not chosen or any(topic_matches(wide, one) for wide in chosen)
                )
                return found or None
        if not chosen:
            for (prefix,) in self._of("topic", "prefix"):
                above = prefix.rpartition("/")[0]
                if above and _are_topics([above]):
                    return (f"{above}/#",)
        return tuple(chosen)

    def pruned(self, one: OffsetRange, log: Times) -> OffsetRange:
        """Return the part of the range that may have matching records."""
        start, end = one.start, one.end
        excluded = any(one.log.log not in values for values in self._of("log", "in")) or any(
            one.log.partition not in values for values in self._of("partition", "in")
        )
        if excluded:
            return one._replace(end=start)
        for first, following in self._spans("offset"):
            start, end = _narrower((start, end), first, following)
        for first, following in self._spans("timestamp"):
            start, end = _narrower(
                (start, end),
                None if first is None else log.offset_at(first),
                None if following is None else log.offset_at(following),
            )
        return one._replace(start=start, end=end)

    def _of(self, column: str, comparison: str) -> Iterable[tuple[Any, ...]]:
        return (
            values for name, compared, values in self.conditions if (name, compared) == (column, comparison)
        )

    def _spans(self, column: str) -> Iterable[tuple[int | None, int | None]]:
        """Yield [first, following) of each condition on a column of whole numbers; None for unbounded."""
        for name, comparison, values in self.conditions:
            if name != column or not values:
                continue
            low, high = min(values), max(values)
            spans: dict[str, tuple[int | None, int | None]] = {
                "in": (low, high + 1),
                ">": (low + 1, None),
                ">=": (low, None),
                "<": (None, high),
                "<=": (None, high + 1),
            }
            yield spans[comparison]


def _narrower(span: tuple[int, int], first: int | None, following: int | None) -> tuple[int, int]:
    start, end = span
    start = start if first is None else min(max(start, first), end)
    return start, end if following is None else max(min(end, following), start)


def _are_topics(values: Sequence[str]) -> bool:
    try:
        validate_topics(values)
    except InvalidName:
        return False
    return True
