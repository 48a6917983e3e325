from timestone.errors import TimestoneError
from timestone_cluster.errors import ClusterError, UndecodableShardRecord


def test_errors_are_caught_as_errors_of_timestone() -> None:
    assert issubclass(UndecodableShardRecord, ClusterError)
    assert issubclass(ClusterError, TimestoneError)
