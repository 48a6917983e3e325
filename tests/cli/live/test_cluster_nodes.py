"""Commands about nodes and their replicas: the help, wrong arguments, and settings. Nodes are moved and removed in
tests/cluster/node/test_placement.py."""

from collections.abc import Iterator

import pytest

from tests.cli.live.test_cluster import timestone
from tests.cluster.etcd_server import EtcdServer, etcd_server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with etcd_server(tmp_path_factory.mktemp("etcd") / "data") as server:
        yield server


def test_commands_of_nodes_are_among_those_of_a_cluster() -> None:
    printed = timestone("--help").stdout
    for name in (
        "replace",
        "move",
        "drain",
        "remove",
        "configure",
        "finalize",
        "recover",
        "restore",
        "repair-metadata",
    ):
        assert f"  {name} " in printed


def test_wrong_arguments_of_moves_are_refused(server: EtcdServer) -> None:
    url = f"etcd://127.0.0.1:{server.port}/plant"
    timestone("init", url)
    for words in (("--from", "a"), ("--to", "a"), (), ("--from", "a", "--to", "b", "--undo")):
        assert "expected --from and --to, or --undo" in timestone("move", url, "0", *words, expect=64).stderr
    moved = timestone("move", url, "0", "--from", "a", "--to", "b", expect=64)
    assert "expected one with a replica of shard 0" in moved.stderr
    wrong = timestone("move", url, "3", "--from", "a", "--to", "b", expect=64)
    assert "invalid shard: expected one below 1, got 3" in wrong.stderr
    for asked in (("recover", url, "--shard", "3"), ("move", url, "3", "--undo")):
        assert "invalid shard: expected one below 1, got 3" in timestone(*asked, expect=64).stderr
    assert "no command has placed it" in timestone("move", url, "0", "--undo", expect=64).stderr
    assert "expected one that runs or has a replica" in timestone("remove", url, "a", expect=64).stderr
    assert "it is not removed" in timestone("remove", url, "a", "--undo", expect=64).stderr
    assert "level 4 of the protocol" in timestone("finalize", url).stdout


def test_settings_of_placing_are_shown_and_changed(server: EtcdServer) -> None:
    url = f"etcd://127.0.0.1:{server.port}/other"
    timestone("init", url)
    assert "balance on, a node is replaced after 15 min, 1 min between" in timestone("configure", url).stdout
    words = ("--no-balance", "--replace-after", "1h", "--leader-pause", "5")
    assert (
        "balance off, a node is replaced after 1 h, 5 s between" in timestone("configure", url, *words).stdout
    )
    assert "balance off" in timestone("status", url).stdout
