"""The text of `timestone cluster status`, without a cluster."""

import io

import pytest
from rich.console import Console

from timestone_cli.live.cluster import _print_status
from timestone_cluster.etcd.keys import ClusterValue
from timestone_cluster.operations import ClusterStatus, NodeStatus


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
