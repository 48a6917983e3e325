"""Log lines of a shard: who leads, who is in sync, and why a node proposes to change that."""

import logging

from timestone_cluster.actions import Propose
from timestone_cluster.shard.shipping import Surroundings
from timestone_cluster.shard_record import ShardRecord, node_of

_LOGGER = logging.getLogger("timestone.cluster")


class ElectionLog:
    """Writes one line for each change, however often it is proposed or read."""

    def __init__(self, shard: int, around: Surroundings) -> None:
        self._shard, self._around = shard, around
        self._proposed: ShardRecord | None = None

    def seen(self, before: ShardRecord | None, record: ShardRecord) -> None:
        """Note what etcd has, and had before."""
        in_sync = "in sync: " + ", ".join(sorted(set(map(node_of, record.isr))))
        if before is None or (before.generation, before.leader) != (record.generation, record.leader):
            leader = "none" if record.leader is None else node_of(record.leader)
            self._write(f"generation {record.generation}, leader {leader}; {in_sync}")
            if before is not None and len(record.unclean) > len(before.unclean):
                _LOGGER.warning(
                    "shard %d: this generation began by command: `timestone cluster status` names what may be lost",
                    self._shard,
                )
        elif before.isr != record.isr:
            self._write(in_sync)

    def proposed(self, proposal: Propose) -> None:
        """Note a proposal of this node, which etcd may refuse: an attempt says why an election took place."""
        if proposal.why and proposal.record != self._proposed:
            self._proposed = proposal.record
            self._write(proposal.why)

    def _write(self, what: str) -> None:
        _LOGGER.info("shard %d: %s", self._shard, self._around.shown(what))
