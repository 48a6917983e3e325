"""How far the stream is: which records the tables have, and which windows are closed. A value; knows no table.

Windows close by event time. The clock is the newest time that any believable message has claimed; one that claims to
be from the future never gets here (`clean`), so that a single broken clock cannot close the windows of all others.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pyspark_timestone.offsets import SourceOffset

MINUTE_US = 60_000_000


@dataclass(frozen=True, slots=True)
class Progress:
    """After a commit of the stream."""

    offset: SourceOffset = field(default_factory=lambda: SourceOffset({}))
    """The next record of each partition; all before it are in the tables."""
    newest_us: int | None = None
    """The newest event time so far."""
    closed_us: Mapping[int, int] = field(default_factory=dict)
    """Length of a window in minutes -> windows that end at or before this time are closed."""

    def advanced(
        self,
        offset: SourceOffset,
        newest_us: int | None,
        *,
        minutes: Iterable[int],
        lateness_s: int,
    ) -> "Progress":
        """After a batch whose newest message is of `newest_us`. Nothing ever opens again."""
        newest = max((at for at in (self.newest_us, newest_us) if at is not None), default=None)
        closed = dict(self.closed_us)
        if newest is not None:
            closed |= self._closed(minutes, newest - lateness_s * 1_000_000)
        return Progress(offset, newest, closed)

    def ended(self, newest_us: int | None, minutes: Iterable[int]) -> "Progress":
        """As if no message would come any more after the newest: every window that has one is closed."""
        if newest_us is None:
            return self
        closed = dict(self.closed_us)
        for length in minutes:
            # A window that begins with the newest message ends one length later.
            closed |= self._closed([length], newest_us + length * MINUTE_US)
        return replace(self, newest_us=newest_us, closed_us=closed)

    @property
    def late_before_us(self) -> int | None:
        """A message older than this belongs to a window that is closed; None while none is."""
        return max(self.closed_us.values(), default=None)

    def _closed(self, minutes: Iterable[int], until_us: int) -> dict[int, int]:
        bounds = {length: until_us - until_us % (length * MINUTE_US) for length in minutes}
        return {length: max(at, self.closed_us.get(length, at)) for length, at in bounds.items()}

    def to_json(self) -> dict[str, Any]:
        """As a commit has it."""
        closed = {str(length): at for length, at in sorted(self.closed_us.items())}
        return {"offset": self.offset.to_json(), "newest_us": self.newest_us, "closed_us": closed}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError, ValueError for what `to_json` has not made."""
        newest = data["newest_us"]
        return cls(
            SourceOffset.from_json(data["offset"]),
            None if newest is None else int(newest),
            {int(length): int(at) for length, at in data["closed_us"].items()},
        )
