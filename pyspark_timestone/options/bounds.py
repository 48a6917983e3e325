"""Where a read starts and where it ends: the oldest record, the newest, given offsets or a time. Turns each into an
offset."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.offsets import LogPartition

EARLIEST = -2
LATEST = -1
"""Kafka's numbers for the two, wherever an offset is written."""


class Extent(Protocol):
    """What a log says of itself."""

    @property
    def start_offset(self) -> int: ...
    @property
    def synced_offset(self) -> int: ...
    def offset_at(self, timestamp_us: int, /) -> int: ...


class Unmatched(enum.Enum):
    """What becomes of a start time after the newest record."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a read. Of the three the first that is set counts, else `default`."""

    default: int
    """EARLIEST or LATEST."""
    option: str = ""
    """The option it came from, for messages."""
    time_us: int | None = None
    times_us: Mapping[LogPartition, int] | None = None
    offsets: Mapping[LogPartition, int] | None = None

    @property
    def explicit(self) -> bool:
        """Are these offsets that the user wrote down?"""
        return self.offsets is not None and self.time_us is None and self.times_us is None

    def offset_in(self, key: LogPartition, log: Extent) -> int:
        """The offset of this bound in one log.

        "Latest", and everything that lies behind the newest record, is the end of what is safe on disk: what is
        planned must be there to be read again.
        """
        time_us = self.time_us if self.times_us is None else self._of(self.times_us, key)
        if time_us is not None:
            return min(log.offset_at(time_us), log.synced_offset)
        offset = self.default if self.offsets is None else self._of(self.offsets, key)
        if offset == EARLIEST:
            return log.start_offset
        return log.synced_offset if offset == LATEST else offset

    def unmatched_in(self, key: LogPartition, log: Extent) -> bool:
        """Is this bound a time that no record has reached?"""
        time_us = self.time_us if self.times_us is None else self._of(self.times_us, key)
        return time_us is not None and log.offset_at(time_us) >= log.synced_offset

    def _of(self, values: Mapping[LogPartition, int], key: LogPartition) -> int:
        if key not in values:
            raise InvalidOption(
                f"{self.option} says nothing about {key}; it has to name every partition that is read"
            )
        return values[key]
