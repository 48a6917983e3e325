"""The text of `timestone cluster status`, without a cluster."""

import io

import pytest
from rich.console import Console

from timestone_cli.live.cluster import _print_status
from timestone_cluster.etcd.keys import ClusterValue
from timestone_cluster.operations import ClusterStatus, NodeStatus, ShardStatus


@pytest.mark.parametrize(
    ("count", "line"),
    [
        (4, "4 nodes for 3 places of replicas: 1 holds nothing"),
        (5, "5 nodes for 3 places of replicas: 2 hold nothing"),
    ],
)
def test_status_says_how_many_nodes_hold_nothing(count: int, line: str) -> None:
    nodes = tuple(NodeStatus(f"{number}", f"n{number}", "127.0.0.1:7000", 1) for number in range(count))
    console = Console(file=io.StringIO(), width=200)
    _print_status(console, ClusterStatus(ClusterValue("c", 1, 3, 2), (), nodes, ()))
    assert isinstance(console.file, io.StringIO)
    assert line in console.file.getvalue()


@pytest.mark.parametrize(
    ("is_lost", "line"),
    [
        (False, "1 shard without replicas: placed once 3 nodes run, now 2"),
        (
            True,
            "shard 0: its record is gone from etcd: see `timestone cluster repair-metadata`, while the nodes run",
        ),
    ],
)
def test_status_says_what_a_shard_without_a_record_waits_for(is_lost: bool, line: str) -> None:
    nodes = tuple(NodeStatus(f"{number}", f"n{number}", "127.0.0.1:7000", 1) for number in range(2))
    shard = ShardStatus(0, 0, None, (), (), (), is_led=False, is_lost=is_lost)
    console = Console(file=io.StringIO(), width=200)
    _print_status(console, ClusterStatus(ClusterValue("c", 1, 3, 2), (), nodes, (shard,)))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines()[-1] == line
