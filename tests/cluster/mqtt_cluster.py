"""A cluster of nodes that serve MQTT, as processes, with clients that go from node to node."""

import asyncio
import random
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import timestone
from mqtt_front.codec.packets import Connack, Disconnect
from tests.cluster.etcd_server import EtcdServer, etcd_server
from tests.cluster.node_processes import NAME, NodeProcess, held, running
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_lasting import LastingClient, LastingPublisher
from tests.support.ports import reserved_port
from timestone_cluster.errors import ClusterError
from timestone_cluster.etcd.client import EtcdClient
from timestone_cluster.etcd.keys import ClusterKeys
from timestone_cluster.moving import drain_node, remove_node, undrain_node
from timestone_cluster.operations import ClusterStatus, cluster_status, configure_cluster, make_cluster

KEYS = ClusterKeys(NAME)
LIMIT_S = 90.0


class MqttCluster:
    """Nodes with the addresses of their listeners. For one thread; clients may use `addresses` in others."""

    def __init__(
        self,
        etcd: EtcdServer,
        nodes: list[NodeProcess],
        ports: list[int],
        shards: int,
        made: Callable[[str], tuple[NodeProcess, int]],
    ) -> None:
        """made: returns another node, and its port."""
        self.etcd, self.nodes, self.shards, self._made = etcd, nodes, shards, made
        self.addresses = [("127.0.0.1", port) for port in ports]

    def join(self, name: str) -> NodeProcess:
        """Start another node."""
        node, port = self._made(name)
        self.nodes.append(node)  # in place: ended with the others
        self.addresses.append(("127.0.0.1", port))
        node.start()
        return node

    def leave(self, node: NodeProcess) -> None:
        """Have all that a node holds placed elsewhere, then stop it."""

        async def remove() -> None:
            async with EtcdClient([self.etcd.url]) as client:
                await remove_node(client, KEYS, node.name, timeout_s=LIMIT_S, progress=lambda line: None)

        asyncio.run(remove())
        self._forget(node)
        node.stop()

    def lose(self, node: NodeProcess) -> None:
        """Kill a node, and delete all it has."""
        self._forget(node)
        node.kill()
        shutil.rmtree(node.folder)

    def _forget(self, node: NodeProcess) -> None:
        place = self.nodes.index(node)
        del self.nodes[place], self.addresses[place]

    def drain(self, node: NodeProcess) -> None:
        """Have a node give away what it leads, and let it lead again."""

        async def drain() -> None:
            async with EtcdClient([self.etcd.url]) as client:
                await drain_node(client, KEYS, node.name, timeout_s=LIMIT_S, progress=lambda line: None)
                await undrain_node(client, KEYS, node.name)

        asyncio.run(drain())

    def address_of(self, node: NodeProcess) -> tuple[str, int]:
        """Return where a node takes clients."""
        return self.addresses[self.nodes.index(node)]

    def status(self) -> ClusterStatus:
        """Return what etcd has."""

        async def read() -> ClusterStatus:
            async with EtcdClient([self.etcd.url]) as client:
                return await cluster_status(client, KEYS)

        return asyncio.run(read())

    def configure(self, **settings: int | bool) -> None:
        """Change settings of the cluster."""

        async def change() -> None:
            async with EtcdClient([self.etcd.url]) as client:
                await configure_cluster(client, KEYS, settings)

        asyncio.run(change())

    def all_led(self, *, other_than: NodeProcess | None = None, in_sync: int = 2) -> list[NodeProcess]:
        """Wait until each shard is led with so many in-sync replicas, and return its leader."""
        return [self.leader(one, other_than=other_than, in_sync=in_sync) for one in range(self.shards)]

    def leader(
        self, number: int = 0, *, other_than: NodeProcess | None = None, in_sync: int = 2
    ) -> NodeProcess:
        """Wait until a node leads a shard with so many in-sync replicas, and return it."""
        ends_s = time.monotonic() + LIMIT_S
        while time.monotonic() < ends_s:
            try:
                shard = self.status().shards[number]
            except ClusterError:
                continue
            found = next((one for one in self.nodes if one.node_id() == shard.leader), None)
            if (
                shard.is_led
                and found is not None
                and found is not other_than
                and len(shard.in_sync) >= in_sync
            ):
                return found
            time.sleep(0.05)
        raise TimeoutError(f"no node leads: {self.status()}")

    def others(self, node: NodeProcess) -> list[NodeProcess]:
        """Return all nodes but one."""
        return [one for one in self.nodes if one is not node]

    def client(
        self, client_id: str, node: NodeProcess, level: int = 5, **connect: object
    ) -> tuple[RawClient, Connack]:
        """Connect a client at a node, again until it is admitted."""
        ends_s = time.monotonic() + LIMIT_S
        while time.monotonic() < ends_s:
            try:
                client = RawClient(self.address_of(node), level)
                answer = client.connect(client_id, **connect)  # type: ignore[arg-type]
                if answer.reason == 0:
                    return client, answer
            except (OSError, AssertionError):
                pass  # no node leads yet
            time.sleep(0.1)
        raise TimeoutError(f"{client_id} is not admitted")

    def stop(self) -> None:
        """Stop all nodes in order, with equal logs."""
        self.all_led(in_sync=3)
        ends_s = time.monotonic() + LIMIT_S
        for shard in range(self.shards):
            while time.monotonic() < ends_s:
                one, *rest = [held(node.folder / f"mqtt-{shard}") for node in self.nodes]
                if all(other == one for other in rest):
                    break
                time.sleep(0.2)
        for node in self.nodes:
            node.stop()

    def records(self, shard: int = 0) -> list[bytes]:
        """Return the payloads in the log of a shard of stopped nodes, whose files have to have the same."""
        one, *rest = [held(node.folder / f"mqtt-{shard}") for node in self.nodes]
        assert all(other == one for other in rest)
        with timestone.view(self.nodes[0].folder) as view:
            payloads = [bytes(record.payload) for record in view.log("mqtt", shard)]
        assert len(payloads) == len(one)
        return payloads


@contextmanager
def mqtt_cluster(
    folder: Path,
    *options: str,
    own: Callable[[str], Sequence[str]] = lambda name: (),
    shards: int = 1,
    topic_keys: Sequence[str] = (),
    count: int = 3,
    ack: str = "synced",
) -> Iterator[MqttCluster]:
    """Run etcd and some nodes for a while. options: of each node. own: returns those of the node of a name."""
    with ExitStack() as stack:
        server = stack.enter_context(etcd_server(folder / "etcd"))

        async def make() -> None:
            async with EtcdClient([server.url]) as client:
                await make_cluster(client, KEYS, shards=shards, replicas=3, topic_keys=topic_keys, ack=ack)

        asyncio.run(make())

        def made(name: str) -> tuple[NodeProcess, int]:
            port = stack.enter_context(reserved_port())
            address = f"127.0.0.1:{port}"
            return NodeProcess(server, folder / name, name, "--mqtt", address, *options, *own(name)), port

        found = [made(name) for name in "abcdefgh"[:count]]
        nodes = [node for node, _ in found]
        stack.enter_context(running(nodes))
        cluster = MqttCluster(server, nodes, [port for _, port in found], shards, made)
        cluster.all_led(in_sync=3)
        yield cluster


@contextmanager
def roaming(
    clients: list[LastingClient], addresses: list[tuple[str, int]], seed: int
) -> Iterator[threading.Event]:
    """Have clients connect, each at any node, and again whenever the connection ends; until the event is set, which the
    end of the block does as well. Their errors are raised there."""
    ended, failures = threading.Event(), []

    def run(client: LastingClient, chance: random.Random) -> None:
        try:
            while not ended.is_set():
                client.run(chance.choice(addresses), ended.is_set)
                time.sleep(chance.uniform(0.02, 0.2))
        except BaseException as error:
            failures.append(error)

    threads = [
        threading.Thread(target=run, args=(client, random.Random(seed + number)), daemon=True)
        for number, client in enumerate(clients)
    ]
    for thread in threads:
        thread.start()
    try:
        yield ended
    finally:
        ended.set()
        for thread in threads:
            thread.join(LIMIT_S)
        if failures:  # first: what the block waits for may not come because of them
            raise failures[0]
    assert not any(thread.is_alive() for thread in threads)


def break_in_turn(
    kinds: Sequence[str], seconds: float, chance: random.Random, break_one: Callable[[str], None]
) -> dict[str, int]:
    """Break something in each way, one after another and again until the time is over. Return how often in which."""
    ends_s, counts = time.monotonic() + seconds, dict.fromkeys(kinds, 0)
    while not all(counts.values()) or time.monotonic() < ends_s:
        kind = kinds[sum(counts.values()) % len(kinds)]
        counts[kind] += 1
        break_one(kind)
        time.sleep(chance.uniform(0.2, 2))
    return counts


def finish(publishers: Sequence[LastingPublisher]) -> None:
    """Have publishers publish nothing new, and wait until all is acknowledged."""
    for publisher in publishers:
        publisher.stopping = True
    until(lambda: all(publisher.idle for publisher in publishers))


def last_publishers(topics: Sequence[str], chance: random.Random) -> list[LastingPublisher]:
    """Return clients each of which publishes one message, by which its topic ends."""
    ends = [
        LastingPublisher(f"last-{topic}", 4, 10**9 + number, chance, (topic,))
        for number, topic in enumerate(topics)
    ]
    for end in ends:
        end.end_with(end.number)
    return ends


def until(is_so: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    """Wait until a function returns true."""
    ends_s = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < ends_s, "not in time"
        time.sleep(0.05)


def last_words(client: RawClient) -> list[object]:
    """Return the packets until the server closes the connection."""
    found: list[object] = []
    try:
        while (packet := client.next_packet(LIMIT_S)) is not None:
            found.append(packet)
            if isinstance(packet, Disconnect):
                client.socket.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    return found
