"""What the upkeep of a replica needs of its log, beside what that of any log does."""

from typing import Protocol

from timestone.replication.names_used import NamesUsed
from timestone.upkeep.host import UpkeptLog


class UpkeptReplica(UpkeptLog, Protocol):
    """A replica. Implemented by `timestone.replication.replicated_log.ReplicatedLog`."""

    names_used: NamesUsed

    @property
    def leads(self) -> bool: ...
    @property
    def names_count(self) -> int: ...
