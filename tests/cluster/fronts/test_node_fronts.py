"""What fronts on each node ask of it. With real nodes and etcd: test_flight."""

import logging
from pathlib import Path
from typing import cast

import pytest

from flight_front.front import FlightFront
from flight_front.settings import FlightSettings
from tests.support.workload import crash_config
from tests.timestone.replication.replicas import commit_alone
from timestone.errors import NotLeader, UnknownLog
from timestone.replication.replicated_log import ReplicatedLog
from timestone.store import Store
from timestone_cluster.etcd.client import Coordinator
from timestone_cluster.etcd.keys import SERVER_LOGS, ClusterKeys
from timestone_cluster.etcd.registry import Registry
from timestone_cluster.fronts.node_fronts import DOCUMENTS_LOG, NodeFronts, named_failure


def test_documents_of_a_shard_are_read_again_when_another_replica_has_led(tmp_path: Path) -> None:
    with Store(tmp_path, crash_config(), log_type=ReplicatedLog) as store:
        fronts = NodeFronts([], store)
        with pytest.raises(UnknownLog):
            fronts.documents(1)
        log = store.log(DOCUMENTS_LOG, 1)
        assert isinstance(log, ReplicatedLog)
        commit_alone(log)
        with pytest.raises(NotLeader):
            fronts.documents(1)
        log.lead(1)
        first = fronts.documents(1)
        first.put_many("a", {"one": b"1", "two": b"2"})
        assert fronts.documents(1) is first
        assert (first.get("a", "one"), first.get("a", "three")) == (b"1", None)
        assert first.page("a", "", 1) == ({"one": b"1"}, "one")
        assert first.page("a", "one", 5, "w") == ({"two": b"2"}, None)
        log.follow()
        log.lead(3)
        second = fronts.documents(1)
        assert second is not first
        assert second.items("a") == {"one": b"1", "two": b"2"}
        with pytest.raises(NotLeader, match="has not led all the time"):
            first.put_many("a", {"one": b"stale"})
        log.follow()


def test_failure_of_a_front_names_it() -> None:
    with (
        pytest.raises(OSError, match="mqtt: cannot listen on x:1: Address already in use") as caught,
        named_failure("mqtt"),
    ):
        raise OSError(98, "cannot listen on x:1: Address already in use")
    assert caught.value.errno == 98
    with pytest.raises(OSError, match=r"flight: no errno$"), named_failure("flight"):
        raise OSError("no errno")
    with pytest.raises(ValueError, match=r"mqtt: not a certificate$"), named_failure("mqtt"):
        raise ValueError("not a certificate")


def test_logs_that_fronts_write_for_themselves_are_not_deleted(tmp_path: Path) -> None:
    with Store(tmp_path, crash_config(), log_type=ReplicatedLog) as store:
        front = FlightFront(store, FlightSettings(), log=logging.getLogger("test"))
        fronts = NodeFronts([front], store)
        assert fronts.own_logs == SERVER_LOGS
        fronts._registry = Registry(cast(Coordinator, None), ClusterKeys("plant"), lambda: None)
        with pytest.raises(UnknownLog):
            fronts.delete_log(DOCUMENTS_LOG)
