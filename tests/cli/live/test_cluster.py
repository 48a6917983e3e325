"""`timestone cluster` with a real etcd."""

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.cli import processes
from tests.cluster.etcd_server import EtcdServer, etcd_server

pytestmark = pytest.mark.slow


def timestone(*words: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
    done = processes.timestone("cluster", *words)
    assert done.returncode == expect, done
    return done


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with etcd_server(tmp_path_factory.mktemp("etcd") / "data") as server:
        yield server


def test_cluster_is_made_once_and_has_logs_and_a_status(server: EtcdServer) -> None:
    url = f"etcd://127.0.0.1:{server.port}/plant"
    assert "make it with" in timestone("status", url, expect=74).stderr
    assert "make it with" in timestone("create-log", url, "telemetry", expect=74).stderr
    assert "2 shards, 3 replicas, 2 in sync" in timestone("init", url, "--shards", "2").stdout
    assert "already" in timestone("init", url, expect=74).stderr
    assert timestone("create-log", url, "telemetry").stdout == "log telemetry\n"
    assert "already" in timestone("create-log", url, "telemetry").stdout
    timestone("create-log", url, "a/b", expect=64)
    found = json.loads(timestone("status", url, "--json", expect=1).stdout)
    assert (found["logs"], found["nodes"], len(found["shards"])) == (["telemetry"], [], 2)
    assert "telemetry" in timestone("status", url, expect=1).stdout


def test_wrong_arguments_are_refused(server: EtcdServer) -> None:
    assert "invalid cluster" in timestone("status", "plant", expect=64).stderr
    url = f"etcd://127.0.0.1:{server.port}/other"
    assert "number of shards" in timestone("init", url, "--shards", "0", expect=64).stderr
    assert "together" in timestone("status", url, "--ca", __file__, expect=64).stderr


def test_etcd_that_does_not_answer_is_an_error_of_the_system() -> None:
    assert timestone("status", "etcd://127.0.0.1:1/plant", expect=74).stderr.count("\n") == 1
