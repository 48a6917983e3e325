"""A cluster on machines of its own: five nodes that serve MQTT, three members of etcd, and a bucket, all with TLS but
the bucket. Each node has a wall clock and a disk of its own, too, where there is a compiler and mounting is allowed."""

import asyncio
import os
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar

from cryptography import x509

from tests.cluster.etcd_server import EtcdServer
from tests.cluster.machines import Network, network
from tests.cluster.node_processes import NAME, NodeProcess, running
from tests.cluster.small_disk import SmallDisk
from tests.support.certificates import Authority
from tests.support.wrong_clock import WrongClock, clock_library
from timestone_bench.tier.s3_server import Identity, S3Server
from timestone_cluster.errors import ClusterError, EtcdUnavailable
from timestone_cluster.etcd.address import Certificates
from timestone_cluster.etcd.client import EtcdClient
from timestone_cluster.etcd.keys import ClusterKeys
from timestone_cluster.operations import ClusterStatus, ShardStatus, cluster_status, make_cluster, make_log

T = TypeVar("T")
KEYS = ClusterKeys(NAME)
LOG = "telemetry"
NODES, ETCDS, BUCKET = ("a", "b", "c", "d", "e"), ("e1", "e2", "e3"), "s3"
MQTT_PORT, PEER_PORT = 1883, 7000
LOGS = (LOG, "mqtt")


class MachineCluster:
    """Nodes, members of etcd and the bucket by the names of their machines."""

    def __init__(
        self,
        wires: Network,
        nodes: dict[str, NodeProcess],
        etcd: dict[str, EtcdServer],
        bucket: S3Server,
        certificates: Certificates,
        clocks: dict[str, WrongClock],
        disks: dict[str, SmallDisk],
    ) -> None:
        """clocks, disks: by the names of nodes; empty where there can be none."""
        self.network, self.nodes, self.etcd, self.bucket = wires, nodes, etcd, bucket
        self.certificates, self.clocks, self.disks = certificates, clocks, disks
        self.addresses = [(wires.machines[name].address, MQTT_PORT) for name in nodes]

    def etcd_client(self) -> EtcdClient:
        """Return a client of all members."""
        return EtcdClient([one.url for one in self.etcd.values()], verify=self.certificates.client_context())

    def ask(self, call: Callable[[EtcdClient], Awaitable[T]]) -> T:
        """Return what a call with a client of etcd returns."""

        async def run() -> T:
            async with self.etcd_client() as client:
                return await call(client)

        return asyncio.run(run())

    def insist(self, call: Callable[[EtcdClient], Awaitable[T]], limit_s: float) -> T:
        """Return what a call returns that may be repeated, as an operator repeats it while etcd is slow."""
        ends_s = time.monotonic() + limit_s
        while True:
            try:
                return self.ask(call)
            except EtcdUnavailable:
                if time.monotonic() > ends_s:
                    raise
                time.sleep(0.5)

    def status(self) -> ClusterStatus:
        """Return what etcd has. Raises ClusterError."""
        return self.ask(lambda client: cluster_status(client, KEYS))

    def shard(self) -> ShardStatus:
        return self.status().shards[0]

    def name_of(self, node_id: str | None) -> str | None:
        """Return the name of a node; None for one that is gone."""
        return next(
            (name for name, node in self.nodes.items() if node_id and node.node_id() == node_id), None
        )

    def until(self, is_so: Callable[[ClusterStatus], T], limit_s: float) -> T:
        """Wait until a function of the status returns something true, and return that."""
        ends_s, found, error = time.monotonic() + limit_s, None, None
        while time.monotonic() < ends_s:
            try:
                found = self.status()
                if answer := is_so(found):
                    return answer
            except ClusterError as raised:
                error = raised
            time.sleep(0.1)
        raise TimeoutError(f"not within {limit_s:.0f} s: {found}, {error!r}")

    def leader(self, limit_s: float = 60.0, *, other_than: str | None = None) -> str:
        """Return the name of the node that leads, once one does."""

        def found(status: ClusterStatus) -> str | None:
            shard = status.shards[0]
            name = self.name_of(shard.leader) if shard.is_led else None
            return name if name != other_than else None

        name = self.until(found, limit_s)
        assert name is not None
        return name

    def replicas(self) -> list[str]:
        """Return the names of the nodes that hold the shard."""
        return [name for one in self.shard().replicas if (name := self.name_of(one)) is not None]

    def all_in_sync(self, limit_s: float) -> None:
        """Wait until the shard is led and each of its three replicas is in sync and registered."""

        def is_so(found: ClusterStatus) -> bool:
            shard, there = found.shards[0], {one.id for one in found.nodes}
            whole = set(shard.in_sync) & set(shard.replicas) & there
            return shard.is_led and len(shard.replicas) == 3 and len(whole) == 3

        self.until(is_so, limit_s)


@contextmanager
def machine_cluster(folder: Path) -> Iterator[MachineCluster]:
    """Run all of it for a while."""
    with ExitStack() as stack:
        wires = stack.enter_context(network([*NODES, *ETCDS, BUCKET]))
        addresses = {name: one.address for name, one in wires.machines.items()}
        authority = Authority(folder)
        issued = authority.issue(
            alternatives=tuple(x509.IPAddress(ip_address(address)) for address in addresses.values()),
            file="all",
        )
        certificates = Certificates(authority.path, issued.path, issued.key_path)
        etcd = {}
        members = ",".join(f"{name}=http://{addresses[name]}:2380" for name in ETCDS)
        for name in ETCDS:
            peers = f"http://{addresses[name]}:2380"
            options = ["--name", name, "--initial-cluster", members, "--initial-advertise-peer-urls", peers]
            member = EtcdServer(
                folder / f"etcd-{name}",
                2379,
                2380,
                certificates,
                host=addresses[name],
                prefix=wires.machines[name].prefix,
                member=options,
            )
            etcd[name] = member
            stack.callback(member.stop)
            member.launch()
        for member in etcd.values():
            member.start()
        bucket = S3Server(
            folder / "s3",
            [Identity("test", {"key": "secret-of-the-test"})],
            host=addresses[BUCKET],
            prefix=wires.machines[BUCKET].prefix,
        )
        stack.callback(bucket.stop)
        stack.callback(bucket.resume)
        stack.enter_context(_environment(bucket.environment))
        endpoints = ",".join(one.endpoint for one in etcd.values())
        library = clock_library(folder)
        clocks = {
            name: WrongClock(folder / f"{name}.clock", library) for name in NODES if library is not None
        }
        disks = _disks(folder, stack)
        nodes = {
            name: NodeProcess(
                endpoints,
                folder / name,
                name,
                "--cluster-listen",
                f"{addresses[name]}:{PEER_PORT}",
                "--mqtt",
                f"{addresses[name]}:{MQTT_PORT}",
                "--mqtt-allow-anonymous-remote",
                "--tier",
                f"s3://{bucket.bucket}/cluster",
                *(
                    "--cluster-ca",
                    str(certificates.ca),
                    "--cluster-certificate",
                    str(certificates.certificate),
                ),
                *("--cluster-key", str(certificates.key)),
                prefix=[*wires.machines[name].prefix, *(clocks[name].prefix if clocks else [])],
            )
            for name in NODES
        }
        cluster = MachineCluster(wires, nodes, etcd, bucket, certificates, clocks, disks)

        async def make(client: EtcdClient) -> None:
            await make_cluster(client, KEYS, shards=1, replicas=3)
            for log in LOGS:
                await make_log(client, KEYS, log, {"segment_entries": 5000})

        cluster.ask(make)
        stack.enter_context(running(list(nodes.values())))
        stack.callback(wires.heal)
        cluster.all_in_sync(60)
        yield cluster


def _disks(folder: Path, stack: ExitStack) -> dict[str, SmallDisk]:
    """Mount a disk for the data of each node; none where that is not allowed."""
    disks = {name: SmallDisk(folder / name) for name in NODES}
    try:
        for disk in disks.values():
            disk.mount()
            stack.callback(disk.unmount)
    except subprocess.CalledProcessError:
        return {}
    return disks


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set variables for a while."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
