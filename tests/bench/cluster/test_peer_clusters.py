"""What surrounds the peers; they are not installed where tests run, unless NATS is."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from timestone_bench.cluster import peer_clusters
from timestone_bench.cluster.peer_clusters import System, family, installed_versions, processor_s, wait_until
from timestone_bench.errors import BenchmarkError


def test_versions_are_those_of_the_files_that_are_given(tmp_path: Path) -> None:
    (tmp_path / "kafka" / "libs").mkdir(parents=True)
    (tmp_path / "kafka" / "libs" / "kafka-clients-4.1.0.jar").touch()
    (tmp_path / "rabbitmq_server-3.10.8" / "sbin").mkdir(parents=True)
    (tmp_path / "lib" / "rabbitmq_server-3.9.1").mkdir(parents=True)
    nats = tmp_path / "nats-server"
    nats.write_text("#!/bin/sh\necho nats-server: v2.11.0\n")
    nats.chmod(0o755)
    found = installed_versions(nats, tmp_path / "kafka", tmp_path / "bin" / "rabbitmq-server")
    assert found == {"nats": "2.11.0", "kafka": "4.1.0", "rabbitmq": "3.9.1"}


def test_processor_time_of_a_system_is_that_of_all_its_processes() -> None:
    words = [sys.executable, "-c", "sum(range(3_000_000)); print(flush=True); input()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        process.stdout.readline()
        assert process.pid in family(os.getpid())
        system = System("system", "mqtt", "127.0.0.1", 1, os.getpid(), [process.pid])
        assert (system.cpu_s() or 0.0) >= processor_s([process.pid]) > 0.0
        own_s, all_s = system.readings[0]
        assert all_s > own_s > 0.0
        process.stdin.close()


def test_waiting_repeats_the_last_error_when_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_clusters, "_WITHIN_S", 0.1)
    assert wait_until(lambda: 0, "is there") == 0

    def refuse() -> None:
        raise ConnectionRefusedError("refused")

    with pytest.raises(BenchmarkError, match="a cluster has no queue after 0 s: refused"):
        wait_until(refuse, "has no queue")


@pytest.mark.skipif(shutil.which("java") is None, reason="java is not installed")
def test_program_of_kafka_that_fails_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match=r"kafka\.Kafka: .*kafka\.Kafka"):
        peer_clusters.java(tmp_path, "kafka.Kafka")
