"""Every error of the cluster: one tree below the engine's, a new leaf only where a caller would decide differently."""

from timestone.errors import TimestoneError


class ClusterError(TimestoneError):
    """The base of all errors of the cluster; never raised itself."""


class UndecodableShardRecord(ClusterError):
    """A value in etcd is not a valid shard record. The shard stays as it is until an operator has repaired it."""
