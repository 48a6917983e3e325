"""Replicas and leaders that nodes place by themselves: processes and a real etcd, nodes that join, leave and are lost
under load, checked by what the files hold."""

import asyncio
import dataclasses
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.cluster.etcd_server import EtcdServer, etcd_server
from tests.cluster.node_processes import NAME, NodeProcess, held, running, wait_until_exits
from tests.cluster.replicas import LED, leader, replica
from timestone.errors import NotLeader
from timestone_cluster.balancer import Member, placed
from timestone_cluster.errors import AppendUnknown, ClusterError
from timestone_cluster.etcd.client import EtcdClient
from timestone_cluster.etcd.keys import ClusterKeys, NodeValue
from timestone_cluster.moving import remove_node, replace_node, unpin_shard, unremove_node
from timestone_cluster.node.client import ClusterClient
from timestone_cluster.node.placement import replica_counts
from timestone_cluster.operations import (
    ClusterStatus,
    cluster_status,
    configure_cluster,
    finalize_cluster,
    make_cluster,
    make_log,
)

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

KEYS = ClusterKeys(NAME)
LOG = "telemetry"
NEVER_S = 60.0


def test_shards_with_missing_replicas_are_counted_at_their_leader() -> None:
    led, follower = leader(), replica("b")
    assert replica_counts([led, follower]) == {
        "shards": 2,
        "observed": 0,
        "leading": 1,
        "under_replicated": 0,
    }
    led.record_seen(dataclasses.replace(LED, isr=frozenset("ab")), 6)
    assert replica_counts([led, follower])["under_replicated"] == 1


class Nodes:
    """A cluster, what clients append to it, and what was acknowledged."""

    def __init__(self, server: EtcdServer, etcd: EtcdClient, folder: Path, shards: int) -> None:
        self.server, self.etcd, self.folder, self.shards = server, etcd, folder, shards
        self.nodes: dict[str, NodeProcess] = {}
        self.all: list[NodeProcess] = []
        self.acknowledged: dict[int, dict[bytes, int]] = {number: {} for number in range(shards)}
        self.unknown: set[bytes] = set()
        self.ended = asyncio.Event()

    def start(self, *names: str, zone: str = "") -> None:
        for name in names:
            node = NodeProcess(
                self.server, self.folder / name, name, *(("--cluster-zone", zone) if zone else ())
            )
            self.nodes[name] = node
            self.all.append(node)  # in place: ended with the others
            node.start()

    async def until(self, is_so: Callable[[ClusterStatus], bool], limit_s: float = NEVER_S) -> ClusterStatus:
        found = None
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    try:
                        found = await cluster_status(self.etcd, KEYS)
                        if is_so(found):
                            return found
                    except ClusterError:
                        pass
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"not in {limit_s} s: {found}") from None

    async def until_placed(self, *names: str) -> ClusterStatus:
        """Wait until all shards are where they shall be on these nodes, and are led by the preferred ones."""

        def is_placed(found: ClusterStatus) -> bool:
            ids = {one.id: one for one in found.nodes if one.name in names}
            members = {node: Member(one.zone, one.weight) for node, one in ids.items()}
            return len(ids) == len(names) and all(
                shard.replicas == placed(shard.number, members, 3)
                and len(shard.in_sync) == 3
                and shard.leader == shard.replicas[0]
                and not shard.adding
                for shard in found.shards
            )

        return await self.until(is_placed)

    async def write(self, name: str) -> None:
        """Append to the shards in turn, each record once."""
        client, number = ClusterClient(self.etcd, KEYS), 0
        while not self.ended.is_set():
            shard, payload = number % self.shards, f"{name} {number}".encode()
            try:
                async with asyncio.timeout(8):
                    offset = await client.append(LOG, [payload], topics=[f"t/{number % 7}"], shard=shard)
                    self.acknowledged[shard][payload] = offset
            except (AppendUnknown, TimeoutError):
                self.unknown.add(payload)
            except (ClusterError, NotLeader, OSError):
                await asyncio.sleep(0.05)
            number += 1
            await asyncio.sleep(0.004)
        await client.close()

    def held_by(self, node: NodeProcess) -> list[int]:
        """Return the shards of which a node has files."""
        return [number for number in range(self.shards) if (node.folder / f"{LOG}-{number}").exists()]

    async def check(self) -> None:
        """Stop all nodes, and require that the files of all replicas have each acknowledged record where it was
        acknowledged, once, and that all are equal."""
        found = await self.until(lambda one: all(s.is_led and len(s.in_sync) == 3 for s in one.shards))
        client = ClusterClient(self.etcd, KEYS)
        last = [await client.append_again(LOG, [b"last"], shard=number) for number in range(self.shards)]
        await client.close()
        by_id = {node.node_id(): node for node in self.nodes.values()}
        folders = {
            shard.number: [by_id[node].folder / f"{LOG}-{shard.number}" for node in shard.replicas]
            for shard in found.shards
        }
        async with asyncio.timeout(NEVER_S):
            while any(
                len(held(folder)) <= last[number] for number, each in folders.items() for folder in each
            ):
                await asyncio.sleep(0.1)
        whole = {(node, number) for number, each in folders.items() for node in (one.parent for one in each)}
        async with asyncio.timeout(NEVER_S):  # what a node shall not have any more it deletes
            while {(node.folder, n) for node in self.nodes.values() for n in self.held_by(node)} != whole:
                await asyncio.sleep(0.2)
        for node in self.nodes.values():
            node.stop()
        for number, each in folders.items():
            one, *others = [[record.payload for record in held(folder)] for folder in each]
            assert all(other == one for other in others)
            places = {payload: offset for offset, payload in enumerate(one)}
            assert {
                payload: places.get(payload) for payload in self.acknowledged[number]
            } == self.acknowledged[number]
            assert len([payload for payload in one if payload != b"last"]) == len(places) - 1


@asynccontextmanager
async def cluster(folder: Path, shards: int) -> AsyncIterator[Nodes]:
    with etcd_server(folder / "etcd") as server:
        async with EtcdClient([server.url]) as etcd:
            await make_cluster(etcd, KEYS, shards=shards, replicas=3)
            await configure_cluster(etcd, KEYS, {"replace_after_ms": 4000, "leader_pause_ms": 300})
            await make_log(etcd, KEYS, LOG)
            nodes = Nodes(server, etcd, folder, shards)
            with running(nodes.all):
                yield nodes


def test_nodes_join_leave_and_are_lost_under_load_without_a_lost_record(tmp_path: Path) -> None:
    async def run() -> None:
        async with cluster(tmp_path, 5) as nodes:
            nodes.start("a", "b", "c")
            await nodes.until_placed("a", "b", "c")
            writers = [asyncio.create_task(nodes.write(f"w{number}")) for number in range(2)]
            nodes.start("d", "e")
            found = await nodes.until_placed("a", "b", "c", "d", "e")
            holding = {node for shard in found.shards for node in shard.replicas}
            assert holding == {one.id for one in found.nodes}
            assert not nodes.unknown, "a move and a hand-over leave no append of unknown outcome"
            told: list[str] = []
            await remove_node(nodes.etcd, KEYS, "d", timeout_s=NEVER_S, progress=told.append)
            assert told[-1] == "d holds no shard"
            found = await nodes.until_placed("a", "b", "c", "e")
            assert [one.name for one in found.nodes if one.is_leaving] == ["d"]
            assert not nodes.unknown
            nodes.nodes.pop("d").stop()
            lost = nodes.nodes.pop("b")
            lost_id = lost.node_id()
            lost.kill()
            shutil.rmtree(lost.folder)
            found = await nodes.until(lambda one: lost_id in {each.id for each in one.away})
            assert {one.name for one in found.away} == {"b"}
            await nodes.until_placed("a", "c", "e")
            nodes.ended.set()
            await asyncio.gather(*writers)
            assert min(len(each) for each in nodes.acknowledged.values()) > 20
            await nodes.check()

    asyncio.run(run())


def test_shard_stays_where_a_command_has_moved_it_until_that_is_undone(tmp_path: Path) -> None:
    async def run() -> None:
        async with cluster(tmp_path, 1) as nodes:
            nodes.start("a", "b", "c", "d")
            found = await nodes.until_placed("a", "b", "c", "d")
            (shard,) = found.shards
            names = {one.id: one.name for one in found.nodes}
            old = names[shard.replicas[0]]  # which leads
            (new,) = set(names.values()) - {names[node] for node in shard.replicas}
            writer = asyncio.create_task(nodes.write("w0"))
            await replace_node(
                nodes.etcd, KEYS, old, new, only=0, timeout_s=NEVER_S, progress=lambda line: None
            )
            pinned = tuple(found.node(new) if node == shard.replicas[0] else node for node in shard.replicas)
            found = await nodes.until(lambda one: one.shards[0].leader == pinned[0])
            assert (found.shards[0].replicas, found.shards[0].is_pinned) == (pinned, True)
            await asyncio.sleep(2)  # in which the nodes would have moved it
            assert (await cluster_status(nodes.etcd, KEYS)).shards[0].replicas == pinned
            await unpin_shard(nodes.etcd, KEYS, 0)
            await nodes.until_placed("a", "b", "c", "d")
            with pytest.raises(ValueError, match="no command has placed it"):
                await unpin_shard(nodes.etcd, KEYS, 0)
            assert not nodes.unknown
            with pytest.raises(ValueError, match="it is not removed"):
                await unremove_node(nodes.etcd, KEYS, "a")
            await remove_node(nodes.etcd, KEYS, old, timeout_s=NEVER_S, progress=lambda line: None)
            await nodes.until_placed(*{"a", "b", "c", "d"} - {old})
            with pytest.raises(ValueError, match="each shard has 3 replicas, and 2 other nodes run"):
                await remove_node(nodes.etcd, KEYS, new, timeout_s=1, progress=lambda line: None)
            await unremove_node(nodes.etcd, KEYS, old)
            await nodes.until_placed("a", "b", "c", "d")
            nodes.ended.set()
            await writer
            await nodes.check()

    asyncio.run(run())


def test_replicas_are_in_different_zones_and_a_node_too_many_holds_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with cluster(tmp_path, 1) as nodes:
            nodes.start("a", "b", zone="x")
            nodes.start("c", zone="y")
            nodes.start("d", zone="z")
            found = await nodes.until_placed("a", "b", "c", "d")
            zones = {one.id: one.zone for one in found.nodes}
            assert sorted(zones[node] for node in found.shards[0].replicas) == ["x", "y", "z"]
            (spare,) = [node for node in nodes.all if node.node_id() not in found.shards[0].replicas]
            await nodes.until(lambda one: "this node holds no shard" in spare.output())

    asyncio.run(run())


def test_level_rises_when_all_nodes_offer_it_and_older_nodes_cannot_join_then(tmp_path: Path) -> None:
    async def run() -> None:
        async with cluster(tmp_path, 1) as nodes:
            nodes.start("a", "b", "c")
            found = await nodes.until_placed("a", "b", "c")
            newest = found.nodes[0].levels[1]
            assert (await finalize_cluster(nodes.etcd, KEYS)).level == newest
            nodes.nodes["c"].kill()
            await nodes.until(lambda one: len(one.nodes) == 2)
            with pytest.raises(ValueError, match="these are away: c"):
                await finalize_cluster(nodes.etcd, KEYS)
            # Nodes of the next version, as etcd has them.
            pairs = (await nodes.etcd.read(KEYS.prefix)).pairs
            for one in found.nodes:
                value = NodeValue(one.name, one.address, one.zone, 1, newest, newest + 1)
                await nodes.etcd.put(KEYS.node(one.id), value.encode())
            assert {KEYS.node(one.id) in pairs for one in found.nodes} == {True, False}
            assert (await finalize_cluster(nodes.etcd, KEYS)).level == newest + 1
            for name in "ab":
                wait_until_exits(nodes.nodes[name])
                assert f"level {newest + 1} of the protocol" in nodes.nodes[name].output()
            nodes.nodes["c"].start()
            assert wait_until_exits(nodes.nodes["c"]) != 0

    asyncio.run(run())
