"""Every error of the cluster: one tree below the engine's, a new leaf only where a caller would decide differently."""

from timestone.errors import TimestoneError


class ClusterError(TimestoneError):
    """The base of all errors of the cluster; never raised itself."""


class EtcdUnavailable(ClusterError):
    """etcd has not answered, or with an error: what was asked may have taken place or not. Ask again."""


class WatchEnded(ClusterError):
    """A watch of etcd is over: what it would have told has to be read."""


class WrongCluster(ClusterError):
    """The cluster is not in etcd, or the data folder belongs to another one."""


class ClusterExists(ClusterError):
    """There is a cluster of this name already."""


class NodeLeft(ClusterError):
    """A node that an operation waits for is not registered any more. Repeat the operation when it is, or with another
    one."""


class AppendUnknown(ClusterError):
    """An append through the cluster may be in the log or not: the leader was lost before it answered."""


class AppendRefused(ClusterError, ValueError):
    """An append that no leader would take, such as a record over the limit of its log. Nothing of it is in the log."""


class UndecodableFrame(ClusterError):
    """A message of another node or a client is not valid. The connection ends."""


class UndecodableValue(ClusterError):
    """A value in etcd is not valid."""


class UndecodableShardRecord(ClusterError):
    """A value in etcd is not a valid shard record. The shard stays as it is until an operator has repaired it."""
