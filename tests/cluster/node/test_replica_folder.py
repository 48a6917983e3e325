"""Folder of a new replica: one id on all nodes, and nothing changes for a log that exists."""

from pathlib import Path

from tests.support.workload import crash_config
from timestone.replication.replicated_log import ReplicatedLog
from timestone.store import Store
from timestone_cluster.node.replica_folder import make_replica_folder, replica_id


def opened(path: Path) -> Store:
    return Store(path, crash_config(), log_type=ReplicatedLog)


def test_log_has_the_id_that_its_folder_was_made_with_on_each_node(tmp_path: Path) -> None:
    wanted = replica_id("plant", "telemetry", 0)
    assert wanted not in (replica_id("other", "telemetry", 0), replica_id("plant", "telemetry", 1))
    for name in "ab":
        with opened(tmp_path / name) as store:
            make_replica_folder(store, "telemetry", 0, wanted)
            assert store.log("telemetry").id == wanted
        with opened(tmp_path / name) as store:
            assert store.log("telemetry").id == wanted


def test_folder_is_made_again_when_its_making_was_interrupted(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        (tmp_path / "telemetry-0").mkdir()
        make_replica_folder(store, "telemetry", 0, 7)
        assert store.log("telemetry").id == 7


def test_log_keeps_its_id_when_it_exists(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        before = store.log("telemetry").id
        make_replica_folder(store, "telemetry", 0, before ^ 1)
    with opened(tmp_path) as store:
        assert store.log("telemetry").id == before
