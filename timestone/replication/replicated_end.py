"""End of a replicated log: only a leader appends for clients, a follower what its leader has written."""

from timestone.errors import NotLeader
from timestone.reading.wakeups import Woken
from timestone.replication.replica_batch import ReplicaBatch
from timestone.writing.log_end import LogEnd
from timestone.writing.write_batch import WriteBatch


class ReplicatedEnd(LogEnd):
    """As `LogEnd`; appends of clients are refused unless this replica leads."""

    leads = False
    """Changed under the write lock."""

    def check_leads(self) -> None:
        """Raise NotLeader unless this replica takes appends."""
        if not self.leads:
            raise NotLeader(f"this replica of {self._folder.name} does not lead")

    def write_prepared_locked(
        self, write_batch: WriteBatch, inline: bool = False, woken: list[Woken] | None = None
    ) -> int | None:
        """See `LogEnd`. Raises NotLeader for a batch of a client."""
        if not isinstance(write_batch, ReplicaBatch) and write_batch.count:
            self.check_leads()
        return super().write_prepared_locked(write_batch, inline, woken)
