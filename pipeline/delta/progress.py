"""Progress of the stream: the records that the tables have, and the closed windows. A value; knows no table.

Windows close by event time. The clock is the newest time of any plausible message; a message from the future is
rejected before (`clean`), so that one broken clock cannot close the windows of all devices."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pyspark_timestone.offsets import SourceOffset

MINUTE_US = 60_000_000


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress after a commit of the stream."""

    offset: SourceOffset = field(default_factory=lambda: SourceOffset({}))
    """Next offset of each partition; all records before it are in the tables."""
    newest_us: int | None = None
    """Newest event time so far."""
    closed_us: Mapping[int, int] = field(default_factory=dict)
    """Length of a window in minutes -> end of the last closed windows."""

    def advanced(
        self,
        offset: SourceOffset,
        newest_us: int | None,
        *,
        minutes: Iterable[int],
        lateness_s: int,
    ) -> "Progress":
        """Return the progress after a batch whose newest message is of `newest_us`. Windows never open again."""
        newest = max((at for at in (self.newest_us, newest_us) if at is not None), default=None)
        closed = dict(self.closed_us)
        if newest is not None:
            closed |= self._closed(minutes, newest - lateness_s * 1_000_000)
        return Progress(offset, newest, closed)

    def ended(self, newest_us: int | None, minutes: Iterable[int]) -> "Progress":
        """Return the progress at the end of the stream: every window that has a message is closed."""
        if newest_us is None:
            return self
        closed = dict(self.closed_us)
        for length in minutes:
            # A window that begins with the newest message ends one length later.
            closed |= self._closed([length], newest_us + length * MINUTE_US)
        return replace(self, newest_us=newest_us, closed_us=closed)

    def closed(self, minutes: Iterable[int]) -> dict[int, int]:
        """Return `closed_us` of these lengths only; others are no longer in the settings."""
        return {length: self.closed_us[length] for length in minutes if length in self.closed_us}

    def late_before_us(self, minutes: Iterable[int]) -> int | None:
        """Return the time before which a message belongs to a closed window; None if none is closed."""
        return max(self.closed(minutes).values(), default=None)

    def _closed(self, minutes: Iterable[int], until_us: int) -> dict[int, int]:
        bounds = {length: until_us - until_us % (length * MINUTE_US) for length in minutes}
        return {length: max(at, self.closed_us.get(length, at)) for length, at in bounds.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the entry in a commit."""
        closed = {str(length): at for length, at in sorted(self.closed_us.items())}
        return {"offset": self.offset.to_json(), "newest_us": self.newest_us, "closed_us": closed}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Decode an entry. Raises KeyError, TypeError, ValueError for an invalid one."""
        newest = data["newest_us"]
        return cls(
            SourceOffset.from_json(data["offset"]),
            None if newest is None else int(newest),
            {int(length): int(at) for length, at in data["closed_us"].items()},
        )
