"""A cluster of three nodes and clients that append to it, checked by what the files of the nodes hold."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.cli import processes
from tests.cluster.etcd_server import EtcdServer, etcd_server
from tests.cluster.node_processes import NAME, HeldRecord, NodeProcess, held, running
from timestone.errors import NotLeader
from timestone_cluster.errors import AppendUnknown, ClusterError
from timestone_cluster.etcd.client import EtcdClient
from timestone_cluster.etcd.keys import ClusterKeys
from timestone_cluster.node.client import ClusterClient
from timestone_cluster.operations import ShardStatus, cluster_status, make_cluster, make_log

KEYS = ClusterKeys(NAME)
LOG = "telemetry"
NEVER_S = 60.0
PAUSE_S = 0.005
"""Between the appends of a client, so that a long run leaves the machine to others."""


class LogCluster:
    """A cluster, clients that append to it, and what was acknowledged."""

    def __init__(self, server: EtcdServer, etcd: EtcdClient, nodes: list[NodeProcess]) -> None:
        self.server, self.etcd, self.nodes = server, etcd, nodes
        self.client = ClusterClient(etcd, KEYS)
        self.acknowledged: dict[bytes, int] = {}
        self.unknown: set[bytes] = set()
        self.refused = 0
        self.longest_s = 0.0

    async def shard(self) -> ShardStatus:
        return (await cluster_status(self.etcd, KEYS)).shards[0]

    async def until(self, is_so: Callable[[ShardStatus], bool]) -> ShardStatus:
        """Wait for a state of the shard."""
        async with asyncio.timeout(NEVER_S):
            while True:
                try:
                    found = await self.shard()
                    if is_so(found):
                        return found
                except ClusterError:
                    pass
                await asyncio.sleep(0.05)

    async def until_in_sync(self, count: int = 3) -> ShardStatus:
        """Wait until the shard is led with so many nodes in sync, and its leader serves: they follow it then."""
        return await self.until(lambda shard: len(shard.in_sync) == count and self._is_served(shard))

    def _is_served(self, shard: ShardStatus) -> bool:
        said = f"shard 0: serves in generation {shard.generation}\n"
        return shard.is_led and any(
            node.node_id() == shard.leader and said in node.output() for node in self.nodes
        )

    async def until_another_leads(self, node: NodeProcess) -> ShardStatus:
        """Wait until the shard is led, and not by this node."""
        return await self.until(lambda shard: shard.is_led and shard.leader != node.node_id())

    async def leader(self) -> NodeProcess:
        found = await self.until(lambda shard: shard.is_led)
        return next(node for node in self.nodes if node.node_id() == found.leader)

    def others(self, node: NodeProcess) -> list[NodeProcess]:
        """Return the other nodes."""
        return [one for one in self.nodes if one is not node]

    async def follower(self) -> NodeProcess:
        return self.others(await self.leader())[0]

    async def until_registered(self, *nodes: str) -> None:
        """Wait until nodes are registered. nodes: names, or ids, where a name may still be that of an earlier node."""
        async with asyncio.timeout(NEVER_S):
            while not set(nodes) <= {
                word
                for node in (await cluster_status(self.etcd, KEYS)).nodes
                for word in (node.name, node.id)
            }:
                await asyncio.sleep(0.05)

    async def registrations(self) -> set[bytes]:
        """Return what etcd has of each node that is registered: with another address each time that it starts."""
        return {pair.value for pair in (await self.etcd.read(KEYS.node(""))).pairs.values()}

    async def until_registered_again(self, before: set[bytes], count: int) -> None:
        """Wait until so many nodes are registered that were not in `registrations` before: those of killed nodes last
        as long as their leases."""
        async with asyncio.timeout(NEVER_S):
            while len(await self.registrations() - before) < count:
                await asyncio.sleep(0.05)

    async def command(self, name: str, *words: str, expect: int = 0) -> str:
        """Run `timestone cluster`, and return what it prints."""
        url = f"etcd://127.0.0.1:{self.server.port}/{KEYS.name}"
        done = await asyncio.to_thread(processes.timestone, "cluster", name, url, *words)
        assert done.returncode == expect, done
        return done.stdout + done.stderr

    def counts(self, faults: dict[str, int]) -> str:
        """Return what has happened so far, as a line."""
        return (
            f"{sum(faults.values())} faults {faults}, {len(self.acknowledged)} acknowledged, "
            f"{len(self.unknown)} unknown, longest pause {self.longest_s:.1f} s"
        )

    async def append(self, *payloads: bytes) -> int:
        """Append records until they are acknowledged, note that, and return the offset of the first."""
        offset = await self.client.append_again(LOG, payloads, timeout_s=NEVER_S)
        self.acknowledged |= {one: offset + place for place, one in enumerate(payloads)}
        return offset

    @asynccontextmanager
    async def writing(self, count: int = 2) -> AsyncIterator[None]:
        """Have clients append until the block ends."""
        ended = asyncio.Event()
        writers = [asyncio.create_task(self._write(f"w{number}", ended)) for number in range(count)]
        yield
        ended.set()
        await asyncio.gather(*writers)

    async def until_more(self, count: int = 20) -> None:
        """Wait until so many further records are acknowledged."""
        wanted = len(self.acknowledged) + count
        async with asyncio.timeout(NEVER_S):
            while len(self.acknowledged) < wanted:
                await asyncio.sleep(0.02)

    async def _write(self, name: str, ended: asyncio.Event) -> None:
        """Append records one after another, each once, and note what is known of it."""
        client, number, last_s = ClusterClient(self.etcd, KEYS), 0, asyncio.get_running_loop().time()
        while not ended.is_set():
            payload = f"{name} {number}".encode()
            try:
                async with asyncio.timeout(8):
                    self.acknowledged[payload] = await client.append(
                        LOG, [payload], topics=[f"{name}/{number % 50}"]
                    )
                now_s = asyncio.get_running_loop().time()
                self.longest_s, last_s = max(self.longest_s, now_s - last_s), now_s
            except (AppendUnknown, TimeoutError):
                self.unknown.add(payload)
            except (ClusterError, NotLeader, OSError):
                self.refused += 1
                await asyncio.sleep(0.05)
            number += 1
            await asyncio.sleep(PAUSE_S)
        await client.close()

    async def until_held(self, count: int, nodes: Sequence[NodeProcess]) -> None:
        """Wait until the files of nodes have so many records."""
        async with asyncio.timeout(NEVER_S):
            while any(len(held(node.folder / f"{LOG}-0")) < count for node in nodes):
                await asyncio.sleep(0.1)

    async def stopped_with(self, count: int) -> list[list[HeldRecord]]:
        """Wait until the files of all nodes have so many records, stop the nodes, and return what each has."""
        await self.until_held(count, self.nodes)
        for node in self.nodes:
            node.stop()
        return [held(node.folder / f"{LOG}-0") for node in self.nodes]

    async def check(self) -> list[HeldRecord]:
        """Stop all nodes, and require that each acknowledged record is once in the files of all, where it was
        acknowledged, and that all have the same ones."""
        await self.until_in_sync()
        last = await self.client.append_again(LOG, [b"the last one"])
        one, *others = await self.stopped_with(last + 1)
        for other in others:
            assert [found for found in one if found.payload != b"the last one"] == [
                found for found in other if found.payload != b"the last one"
            ]
        payloads = {offset: found.payload for offset, found in enumerate(one) if found.payload}
        places = {payload: offset for offset, payload in payloads.items()}
        assert len(places) == len(payloads) or {payloads[at] for at in payloads if at >= last} == {
            b"the last one"
        }
        wrong = {
            payload: offset for payload, offset in self.acknowledged.items() if places.get(payload) != offset
        }
        assert not wrong, f"{len(wrong)} of {len(self.acknowledged)} acknowledged: {list(wrong.items())[:5]}"
        assert set(places) <= {*self.acknowledged, *self.unknown, b"the last one"}
        by_writer: dict[bytes, int] = {}
        for payload in (payloads[at] for at in payloads if at < last):
            name, number = payload.split()
            assert int(number) > by_writer.get(name, -1), f"{payload!r} stands behind a later one"
            by_writer[name] = int(number)
        times = [found.timestamp_us for found in one]
        assert times == sorted(times)
        return one


@asynccontextmanager
async def log_cluster(
    folder: Path,
    place: Callable[[str], Path] = lambda name: Path(name),
    *,
    made: Callable[[EtcdServer, Path, str], NodeProcess] = NodeProcess,
    settings: Mapping[str, Any] = MappingProxyType({}),
    ack: str = "synced",
) -> AsyncIterator[LogCluster]:
    """Run etcd and three nodes for a while. place: returns where in the folder the data of a node is, by its name.
    made: returns a node, for its etcd, folder and name. settings: of the log."""
    with etcd_server(folder / "etcd") as server:
        async with EtcdClient([server.url]) as etcd:
            await make_cluster(etcd, KEYS, shards=1, replicas=3, ack=ack)
            await make_log(etcd, KEYS, LOG, settings)
            nodes = [made(server, folder / place(name), name) for name in "abc"]
            with running(nodes):
                cluster = LogCluster(server, etcd, nodes)
                try:
                    yield cluster
                finally:
                    await cluster.client.close()
