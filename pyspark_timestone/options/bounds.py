"""Bounds of a read: the oldest record, the newest, given offsets or a time. Converts each to an offset."""

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.offsets import LogPartition

EARLIEST = -2
LATEST = -1
"""Kafka's numbers for the two, accepted in place of offsets."""


class Extent(Protocol):
    """Extent of a log."""

    @property
    def start_offset(self) -> int: ...
    @property
    def synced_offset(self) -> int: ...
    def offset_at(self, timestamp_us: int, /) -> int: ...


class Unmatched(enum.Enum):
    """Policy for a start time after the newest record."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a read. The first of the three that is set applies, else `default`."""

    default: int
    """EARLIEST or LATEST."""
    option: str = ""
    """Option that it came from, for messages."""
    time_us: int | None = None
    times_us: Mapping[LogPartition, int] | None = None
    offsets: Mapping[LogPartition, int] | None = None

    @property
    def explicit(self) -> bool:
        """Return whether the bound is a set of given offsets."""
        return self.offsets is not None and self.time_us is None and self.times_us is None

    def offset_in(self, key: LogPartition, log: Extent) -> int:
        """Return the offset of this bound in one log. "Latest", and everything after the newest record, is the end of
        the durable records: planned records must be readable again."""
        time_us = self.time_us if self.times_us is None else self._of(self.times_us, key)
        if time_us is not None:
            return min(log.offset_at(time_us), log.synced_offset)
        offset = self.default if self.offsets is None else self._of(self.offsets, key)
        if offset == EARLIEST:
            return log.start_offset
        return log.synced_offset if offset == LATEST else offset

    def refuse_unmatched(self, key: LogPartition, log: Extent) -> None:
        """Raise InvalidOption if this is the time of a start that no record of the log has reached."""
        time_us = self.time_us if self.times_us is None else self._of(self.times_us, key)
        if time_us is not None and log.offset_at(time_us) >= log.synced_offset:
            raise InvalidOption(
                f"invalid {self.option}: expected a time that a record of {key} has reached, got a later one; to begin"
                " at the end instead, set startingOffsetsByTimestampStrategy to latest"
            )

    def refuse_others(self, chosen: Collection[LogPartition]) -> None:
        """Raise InvalidOption if this bound names a partition that is not read: Kafka's source has it that way, and
        it is a sign of a wrong name."""
        named = self.offsets if self.times_us is None else self.times_us
        others = (
            [] if named is None or self.time_us is not None else [key for key in named if key not in chosen]
        )
        if others:
            read = ", ".join(str(key) for key in sorted(chosen)) or "none yet"
            raise InvalidOption(
                f"invalid {self.option}: expected the partitions that are read ({read}), got {others[0]} too"
            )

    def _of(self, values: Mapping[LogPartition, int], key: LogPartition) -> int:
        if key not in values:
            raise InvalidOption(
                f"invalid {self.option}: expected an entry for each partition that is read, got none for {key}"
            )
        return values[key]
