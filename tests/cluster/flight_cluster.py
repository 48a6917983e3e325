"""A cluster of three nodes that serve Arrow Flight, as processes."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.flight as fl

from tests.cluster.etcd_server import EtcdServer, etcd_server
from tests.cluster.node_processes import NAME, NodeProcess, running
from tests.support.ports import reserved_port
from timestone_cluster.etcd.client import EtcdClient
from timestone_cluster.etcd.keys import ClusterKeys
from timestone_cluster.operations import make_cluster, make_log

KEYS = ClusterKeys(NAME)
LIMIT_S = 60.0
LOG = "telemetry"
REFUSED = (fl.FlightError, pa.ArrowException)
T = TypeVar("T")


class FlightCluster:
    """Nodes with the addresses of their fronts. For one thread."""

    def __init__(self, etcd: EtcdServer, nodes: list[NodeProcess], addresses: list[str]) -> None:
        self.etcd, self.nodes, self.addresses = etcd, nodes, addresses

    def connect(self, node: NodeProcess) -> Any:
        """Return a client of a node."""
        return fl.connect(f"grpc://{self.addresses[self.nodes.index(node)]}")

    def places(self) -> dict[str, Any]:
        """Return what a node says of the cluster."""
        for node in self.nodes:
            if node.process is None:
                continue
            try:
                with self.connect(node) as client:
                    found = act(client, "cluster")
            except REFUSED:
                continue
            return found
        return {"nodes": {}, "shards": []}

    def leader(
        self, shard: int = 0, *, other_than: NodeProcess | None = None, in_sync: int = 2
    ) -> NodeProcess:
        """Wait until a node leads a shard with so many in-sync replicas, and return it."""
        ends_s = time.monotonic() + LIMIT_S
        while time.monotonic() < ends_s:
            shards = self.places()["shards"]
            leader, holders = None, 0
            if shard < len(shards):
                leader, holders = shards[shard]["leader"], len(shards[shard]["in_sync"])
            found = next((one for one in self.nodes if one.node_id() == leader), None)
            if found is not None and found is not other_than and holders >= in_sync:
                return found
            time.sleep(0.05)
        raise TimeoutError(f"no node leads shard {shard}: {self.places()}")

    def at_leader(self, ask: Callable[[Any], T], shard: int = 0) -> T:
        """Return the answer of the leader, of the next one if it is lost."""
        ends_s = time.monotonic() + LIMIT_S
        while True:
            try:
                with self.connect(self.leader(shard)) as client:
                    return ask(client)
            except REFUSED:
                if time.monotonic() > ends_s:
                    raise
                time.sleep(0.1)

    def others(self, node: NodeProcess) -> list[NodeProcess]:
        """Return all nodes but one."""
        return [one for one in self.nodes if one is not node]


def act(client: Any, kind: str, **values: Any) -> dict[str, Any]:
    """Run an action."""
    action = fl.Action(kind, json.dumps(values).encode())
    [result] = client.do_action(action, fl.FlightCallOptions(LIMIT_S))
    found: dict[str, Any] = json.loads(result.body.to_pybytes())
    return found


@contextmanager
def flight_cluster(
    folder: Path,
    *options: str,
    shards: int = 1,
    settings: Mapping[str, Any] = MappingProxyType({}),
    ack: str = "synced",
) -> Iterator[FlightCluster]:
    """Run etcd and three nodes for a while, with a log. settings: of the log."""
    with ExitStack() as stack:
        server = stack.enter_context(etcd_server(folder / "etcd"))

        async def make() -> None:
            async with EtcdClient([server.url]) as client:
                await make_cluster(client, KEYS, shards=shards, replicas=3, ack=ack)
                await make_log(client, KEYS, LOG, settings)

        asyncio.run(make())
        ports = [stack.enter_context(reserved_port()) for _ in range(3)]
        nodes = [
            NodeProcess(server, folder / name, name, "--flight", f"127.0.0.1:{port}", *options)
            for name, port in zip("abc", ports, strict=True)
        ]
        stack.enter_context(running(nodes))
        cluster = FlightCluster(server, nodes, [f"127.0.0.1:{port}" for port in ports])
        for shard in range(shards):
            cluster.leader(shard, in_sync=3)
        yield cluster
