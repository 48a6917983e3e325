"""Three nodes of a cluster on one machine, started by one command, with a real etcd: what they share, and how they are
started again and stopped."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.cli import processes
from tests.cluster.etcd_server import EtcdServer, etcd_server
from tests.support.mqtt_clients import RawClient
from tests.support.ports import reserved_port

pytestmark = [pytest.mark.slow, pytest.mark.cluster]
LIMIT_S = 60.0


class Server:
    """`timestone serve --workers 3`, and what it has printed."""

    def __init__(self, etcd: EtcdServer, folder: Path, port: int, *options: str) -> None:
        self.folder, self.port, self.output = folder, port, folder.with_suffix(".log")
        self.ready_file = folder.with_suffix(".ready")
        url = f"etcd://127.0.0.1:{etcd.port}/plant"
        command = [
            sys.executable, "-m", "timestone_cli", "serve", "--workers", "3", "--cluster", url, "--data", str(folder),
            "--mqtt", f"127.0.0.1:{port}", "--metrics-interval-ms", "0", "--console-listen", "none",
            "--ready-file", str(self.ready_file), *options,
        ]  # fmt: skip
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)

    def until(self, is_so: Callable[[], object]) -> None:
        ends_s = time.monotonic() + LIMIT_S
        while not is_so():
            assert time.monotonic() < ends_s, self.output.read_text()
            time.sleep(0.05)

    def workers(self) -> dict[str, Any]:
        """Return what the ready file has of each, by its name."""
        return dict(json.loads(self.ready_file.read_text())["workers"])

    def pids(self) -> list[int]:
        return [self.workers()[f"worker-{number}"]["pid"] for number in range(3)]

    def printed(self, text: str) -> int:
        return self.output.read_text().count(text)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def served(tmp_path: Path, *options: str, shards: int = 1) -> Iterator[Server]:
    with etcd_server(tmp_path / "etcd") as etcd, reserved_port() as port:
        url = f"etcd://127.0.0.1:{etcd.port}/plant"
        made = processes.timestone("cluster", "init", url, "--shards", str(shards))
        assert made.returncode == 0, made
        server = Server(etcd, tmp_path / "data", port, *options)
        try:
            server.until(server.ready_file.exists)
            yield server
        finally:
            server.process.kill()
            server.process.wait()


def test_workers_share_the_port_of_mqtt_and_one_that_dies_starts_again(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        assert server.printed("\nready\n") == 1
        pids = server.pids()
        held = {pid: _listens(pid, server.port) for pid in pids}
        assert set(held.values()) == {True}, held
        for number in range(6):  # at any worker
            words = ("-p", str(server.port), "-t", "line/1", "-m", str(number), "-q", "1", "--timeout", "30s")
            assert processes.timestone("pub", *words).returncode == 0
        os.kill(pids[1], signal.SIGKILL)
        server.until(lambda: server.printed("worker-1 has ended with exit code -9; it starts again in 1 s"))
        server.until(lambda: server.printed("worker-1  ready") == 2)
        words = ("-p", str(server.port), "-t", "line/1", "-m", "last", "-q", "1", "--timeout", "30s")
        assert processes.timestone("pub", *words).returncode == 0
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(LIMIT_S) == 0, server.output.read_text()
        assert server.printed("\nstopped\n") == 1
        assert server.printed("  stopped\n") == 3, "each worker has closed its store"
        assert not server.ready_file.exists()
        records = processes.timestone("read", str(server.folder / "worker-0"), "mqtt").stdout
        assert [json.loads(line)["value"] for line in records.splitlines()] == [*map(str, range(6)), "last"]


def test_client_is_served_by_the_worker_that_leads_its_home_and_no_bytes_are_passed_on(
    tmp_path: Path,
) -> None:
    def counts() -> Counter[str]:
        addresses = [worker["metrics"] for worker in server.workers().values()]
        pages = [urlopen(f"http://{address}/metrics").read().decode() for address in addresses]
        rows = re.findall(
            r"^timestone_cluster_(given|relayed|relays_failed|serves|under_replicated) (\d+)$",
            "".join(pages),
            re.M,
        )
        return sum((Counter({name: int(value)}) for name, value in rows), Counter())

    def publish(name: str) -> None:
        with RawClient(("127.0.0.1", server.port)) as client:
            client.connect(name)
            client.publish(f"devices/{name}/t", name.encode())

    with served(tmp_path, "--metrics", "127.0.0.1:0", shards=6) as server:
        server.until(lambda: counts()["serves"] == 6)
        for number in range(24):  # at any worker
            publish(f"device-{number}")
        found = counts()
        assert (found["relayed"], found["relays_failed"]) == (0, 0)
        assert found["given"] > 0, "by chance once in 3 to the power of 24 runs"
        killed = server.pids()[1]
        os.kill(killed, signal.SIGKILL)
        server.until(lambda: len(server.workers()) == 2)
        server.until(lambda: len(server.workers()) == 3)
        assert server.pids()[1] != killed
        for number in range(24, 48):
            publish(f"device-{number}")
        server.until(lambda: (counts()["serves"], counts()["under_replicated"]) == (6, 0))
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(LIMIT_S) == 0, server.output.read_text()
    for number in range(3):  # each was in sync, and so has all that was acknowledged
        inspected = processes.timestone("inspect", str(tmp_path / "data" / f"worker-{number}"), "--json")
        logs = json.loads(inspected.stdout)["logs"]
        assert sum(one["records"] for one in logs if one["log"] == "mqtt") == 48


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        pids = server.pids()
        server.process.kill()
        server.until(lambda: not any(map(is_alive, pids)))


def test_server_ends_when_a_worker_cannot_start(tmp_path: Path) -> None:
    with etcd_server(tmp_path / "etcd") as etcd, reserved_port() as port:  # without a cluster in it
        server = Server(etcd, tmp_path / "data", port)
        assert server.process.wait(LIMIT_S) == 1, server.output.read_text()
        assert server.printed("could not start: exit code")
        assert server.printed("make it with `timestone cluster init`")
    wrong = processes.timestone("serve", "--workers", "2", "--data", str(tmp_path / "other"))
    assert (wrong.returncode, "expected --cluster URL as well" in wrong.stderr) == (64, True)


def _listens(pid: int, port: int) -> bool:
    """Return whether a process has a socket that listens at a port."""
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    listening = {row[9] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")}
    links = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()]
    return bool(listening & {link[8:-1] for link in links if link.startswith("socket:[")})
