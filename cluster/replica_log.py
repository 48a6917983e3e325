"""What the protocol knows of one log of a replica: where its generations begin, and how far what is promised.

A segment has records of one generation, so the runs here are the headers of the segments: the table of epochs that
Kafka keeps in a file of its own (KIP-101) needs no file.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Self


class Run(NamedTuple):
    """Consecutive records of one generation."""

    generation: int
    first: int
    """Offset of its first record."""
    names: int
    """Count of topic names that the records in front of it use."""


class Place(NamedTuple):
    """The end of a generation in a log. Generation 0: the log has none of those asked for."""

    generation: int
    end: int
    names: int


@dataclass(slots=True)
class ReplicaLog:
    """State of one log. Offsets are half-open: `end` is the offset of the next record."""

    start: int = 0
    end: int = 0
    names: int = 0
    """Count of topic names that the records use. Names are numbered in the order of their first use, so equal records
    have equal names."""
    durable: int = 0
    """Below it records survive what the acknowledgement level promises: a power loss, or the death of the process."""
    committed: int = 0
    """Below it records are on all in-sync replicas, as far as this one knows. Never cut, the only ones ever shown."""
    clean: int = 0
    """Below it compaction has left no record with an older one of its topic here, and all is durable."""
    stable: int = 0
    """Below it all replicas are clean, in sync or not: tombstones there may be dropped."""
    runs: tuple[Run, ...] = ()
    damaged: bool = False
    """Has a durable record that cannot be read: it acknowledges nothing, and is never elected."""

    @classmethod
    def opened(
        cls, *, start: int, end: int, names: int, committed: int, runs: Iterable[tuple[int, int, int]]
    ) -> Self:
        """Return the state of a log that was opened and is durable. runs: generation, first offset and count of names
        in front of each."""
        return cls(start, end, names, end, committed, runs=tuple(Run(*run) for run in runs))

    @property
    def last_generation(self) -> int:
        """Return the generation of the last record; 0 of a log without one."""
        return self.runs[-1].generation if self.runs else 0

    def generation_at(self, offset: int) -> int:
        """Return the generation of a record; 0 if it is not known. It may be known of one that was deleted."""
        place = bisect_right(self.runs, offset, key=lambda run: run.first)
        return self.runs[place - 1].generation if place and offset < self.end else 0

    def end_of(self, generation: int) -> Place:
        """Return where the largest generation that is not above the given one ends."""
        place = bisect_right(self.runs, generation, key=lambda run: run.generation)
        end, names = (
            (self.runs[place].first, self.runs[place].names)
            if place < len(self.runs)
            else (self.end, self.names)
        )
        return Place(self.runs[place - 1].generation if place else 0, end, names)

    def extend(self, generation: int, end: int, names: int) -> None:
        """Note that records of a generation were written up to `end`, and use `names` topic names."""
        if generation != self.last_generation:
            self.runs += (Run(generation, self.end, self.names),)
        self.end, self.names = end, names

    def cut(self, offset: int, names: int) -> None:
        """Note that the records from an offset on were removed."""
        self.runs = tuple(run for run in self.runs if run.first < offset)
        self.end, self.names = offset, names
        self.durable, self.committed = min(self.durable, offset), min(self.committed, offset)
        self.clean, self.stable = min(self.clean, offset), min(self.stable, offset)

    def begin(self, start: int) -> None:
        """Note that the records below an offset were deleted; the generation of the last one is kept."""
        place = bisect_right(self.runs, start - 1, key=lambda run: run.first)
        self.start, self.runs = start, self.runs[max(place - 1, 0) :]

    def reset(self, start: int) -> None:
        """Note that all records were removed, and that the log begins at another offset."""
        self.start = self.end = self.durable = self.committed = self.clean = self.stable = start
        self.names, self.runs, self.damaged = 0, (), False
