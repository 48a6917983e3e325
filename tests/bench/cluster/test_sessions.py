import pytest

from timestone_bench.cluster.own_cluster import OwnCluster
from timestone_bench.cluster.sessions import make_sessions, served_after_s

pytestmark = pytest.mark.xdist_group("cluster of benchmarks")


@pytest.mark.slow
@pytest.mark.cluster
def test_sessions_are_at_the_next_leader(cluster: OwnCluster) -> None:
    """`served_after_s` requires that a session is present there."""
    make_sessions(cluster, 30)
    assert -1.0 < served_after_s(cluster) < 30.0
    cluster.leader()
