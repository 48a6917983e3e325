from pathlib import Path

import pytest

import timestone
from timestone_bench.cluster import appends
from timestone_bench.cluster.own_cluster import LOG, OwnCluster

pytestmark = pytest.mark.xdist_group("cluster of benchmarks")


def test_raw_copy_leaves_only_its_source(tmp_path: Path) -> None:
    assert appends.raw_copy(tmp_path, 3_000_000) > 0
    assert [path.name for path in tmp_path.iterdir()] == ["raw-source"]
    assert (tmp_path / "raw-source").stat().st_size == 3_000_000


@pytest.mark.slow
@pytest.mark.cluster
def test_appends_are_acknowledged_and_a_follower_catches_up(cluster: OwnCluster) -> None:
    assert appends.append(cluster, 1000) > 0
    size_bytes, taken_s = appends.catch_up(cluster, 2000)
    assert size_bytes >= 2000 * appends.RECORD_BYTES and taken_s > 0
    with timestone.view(cluster.leader().folder) as view:
        assert view.log(LOG).end_offset >= 3000
