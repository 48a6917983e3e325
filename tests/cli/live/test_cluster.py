"""`timestone cluster` with a real etcd."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli import processes
from tests.cluster.etcd_server import EtcdServer, etcd_server
from tests.house.pages import blocks
from tests.support.ports import reserved_port
from timestone_cluster.etcd.client import EtcdClient
from timestone_cluster.etcd.keys import ClusterKeys, ClusterValue

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
    keyed = f"etcd://127.0.0.1:{server.port}/keyed"
    assert timestone("init", keyed, "--shards", "4", "--topic-key", "devices/{key}/#").stderr == ""
    assert "expected {key}" in timestone("init", keyed, "--topic-key", "devices/#", expect=64).stderr
    assert timestone("create-log", url, "telemetry").stdout == "log telemetry\n"
    assert "already" in timestone("create-log", url, "telemetry").stdout
    timestone("create-log", url, "a/b", expect=64)
    assert "nothing is set" in timestone("configure-log", url, "telemetry").stdout
    assert "retention_ms=604800000" in timestone("configure-log", url, "telemetry", "retention_ms=7d").stdout
    timestone("configure-log", url, "other", "retention_ms=7d", expect=64)
    assert "compact=true" in timestone("configure-log", url, "telemetry", "compact=true").stdout
    timestone("create-log", url, "other", "record_bytes=1", expect=64)
    found = json.loads(timestone("status", url, "--json", expect=1).stdout)
    assert (found["logs"], found["nodes"], len(found["shards"])) == (["telemetry"], [], 2)
    assert "others" not in found["cluster"]  # what a later version keeps there
    assert "telemetry" in timestone("status", url, expect=1).stdout


def test_wrong_arguments_are_refused(server: EtcdServer) -> None:
    assert "invalid cluster" in timestone("status", "plant", expect=64).stderr
    url = f"etcd://127.0.0.1:{server.port}/other"
    assert "number of shards" in timestone("init", url, "--shards", "0", expect=64).stderr
    assert "together" in timestone("status", url, "--ca", __file__, expect=64).stderr
    assert "together" in timestone("status", url, "--user", "plant", expect=64).stderr
    timestone("init", url)
    assert "expected one with a replica" in timestone("replace", url, "a", "b", expect=64).stderr
    assert "a replica of shard 0" in timestone("move", url, "0", "--from", "a", "--to", "b", expect=64).stderr
    assert "expected a registered one" in timestone("drain", url, "a", expect=64).stderr
    assert "it is not drained" in timestone("drain", url, "a", "--undo", expect=64).stderr


def test_setting_that_nodes_could_not_read_is_not_written(server: EtcdServer) -> None:
    url = f"etcd://127.0.0.1:{server.port}/bounded"
    timestone("init", url)
    refused = timestone("configure", url, "--replace-after", "99999999999999999999d", expect=64).stderr
    assert "invalid value for '--replace-after': expected at most 2^63 - 1" in refused
    assert "replaced after 15 min" in timestone("configure", url).stdout
    assert "above 0" in timestone("append", url, "telemetry", "--timeout-s", "nan", expect=64).stderr


def test_etcd_that_does_not_answer_is_an_error_of_the_system() -> None:
    assert timestone("status", "etcd://127.0.0.1:1/plant", expect=74).stderr.count("\n") == 1


@pytest.mark.cluster
def test_lines_of_the_page_make_a_cluster_whose_nodes_all_have_the_records(tmp_path: Path) -> None:
    """Those of docs/cluster.md as they are, but for etcd, which runs at another port, and a wait for the nodes."""
    *lines, status, append, read = _lines_with("cluster append")
    assert ("status" in status, "append" in append, "read b" in read) == (True, True, True)
    reads = [read.split("#")[0].replace("read b", f"read {name}") for name in "abc"]
    script = [*lines, _until_led(status), append]
    script += [f'until [ "$({one} | wc -l)" = 5 ]; do sleep 0.1; done; {one}' for one in reads]
    printed = _printed(script, tmp_path)
    assert [printed.count(f'"value":"{number}"') for number in range(1, 6)] == [3] * 5, printed


@pytest.mark.cluster
def test_lines_of_the_page_bring_a_message_to_the_session_at_another_node_when_one_is_killed(
    tmp_path: Path,
) -> None:
    """As above; MQTT at other ports, too."""
    *lines, status, session, kill, pub, sub = _lines_with("--mqtt 127.0.0.1:1883")
    assert ("status" in status, "sub" in session, "kill" in kill, "pub" in pub) == (True, True, True, True)
    with reserved_port() as one, reserved_port() as two, reserved_port() as three:
        ports = {"1883": str(one), "1884": str(two), "1885": str(three)}
        script = [*lines, _until_led(status), session, kill, pub, sub]
        for known, port in ports.items():
            script = [
                line.replace(f":{known} ", f":{port} ").replace(f"-p {known} ", f"-p {port} ")
                for line in script
            ]
        assert _printed(script, tmp_path).splitlines()[-1] == "hello"


def _lines_with(words: str) -> list[str]:
    """Return the lines of the page's block with these words, without the first one, which starts etcd."""
    page = next(
        block
        for block in blocks(Path("docs/cluster.md"))
        if "cluster init" in block.text and words in block.text
    )
    first, *lines = page.text.splitlines()
    assert first == "etcd --data-dir etcd &"
    return lines


def _until_led(status: str) -> str:
    return f"until {status.split('#')[0]} >status; do sleep 0.1; done"


def _printed(script: list[str], folder: Path) -> str:
    """Return what lines print in a folder, with an etcd for them."""
    with etcd_server(folder / "etcd") as server:
        text = "\n".join(("set -eu", *script)).replace("127.0.0.1:2379", f"127.0.0.1:{server.port}")
        shell = subprocess.Popen(
            ["bash", "-c", text],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=(folder / "errors").open("w"),
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            text=True,
            start_new_session=True,  # with the nodes, which it leaves running
        )
        try:
            assert shell.wait(90) == 0, (folder / "errors").read_text()
        finally:
            os.killpg(shell.pid, signal.SIGKILL)
        assert shell.stdout is not None
        return shell.stdout.read()


def test_log_is_deleted_once_and_not_on_a_cluster_of_an_earlier_version(server: EtcdServer) -> None:
    url = f"etcd://127.0.0.1:{server.port}/deletions"
    timestone("init", url)
    timestone("create-log", url, "telemetry")
    assert "cannot ask" in timestone("delete-log", url, "telemetry", expect=64).stderr
    done = json.loads(timestone("delete-log", url, "telemetry", "--yes", "--json").stdout)
    assert done == {"log": "telemetry", "shards": []}
    assert "the cluster has none" in timestone("delete-log", url, "telemetry", "--yes", expect=64).stderr
    assert "the server's own" in timestone("delete-log", url, "mqtt-state", "--yes", expect=64).stderr
    timestone("create-log", url, "telemetry")

    async def make_older() -> None:
        async with EtcdClient([server.url]) as etcd:
            keys = ClusterKeys("deletions")
            value = ClusterValue.decode((await etcd.read(keys.cluster)).pairs[keys.cluster].value)
            await etcd.put(keys.cluster, replace(value, level=3).encode())

    asyncio.run(make_older())
    assert "cluster finalize" in timestone("delete-log", url, "telemetry", "--yes", expect=64).stderr
