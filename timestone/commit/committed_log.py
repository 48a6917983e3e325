"""What the threads of this room need of a log."""

from typing import Protocol

from timestone.commit.commit_delay import FlushGroups


class CommittedLog(Protocol):
    """A log that is written, flushed and sealed by threads of its store. Implemented by `timestone.log.Log`."""

    name: str
    partition: int
    flush_groups: FlushGroups

    @property
    def awaited(self) -> bool: ...
    @property
    def gathers(self) -> bool: ...
    @property
    def sync_wanted(self) -> bool: ...
    @property
    def sync_overdue(self) -> bool: ...
    @property
    def dirty(self) -> bool: ...

    def write_queued(self) -> None: ...
    def sync_queued(self) -> None: ...
    def seal_rolled(self) -> None: ...
