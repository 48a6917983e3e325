"""Moves of replicas and leaders whose nodes leave midway, in a real etcd that has nodes which do nothing. Those that
succeed are in node/test_placement.py."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from tests.cluster.etcd_server import EtcdServer, etcd_server
from timestone_cluster.errors import NodeLeft
from timestone_cluster.etcd.client import EtcdClient
from timestone_cluster.etcd.keys import ClusterKeys, NodeValue, decode_pin, encode_pin
from timestone_cluster.moving import drain_node, remove_node, replace_node
from timestone_cluster.operations import cluster_status, make_cluster
from timestone_cluster.shard_record import ShardRecord

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

A, B, C, D = (letter * 16 for letter in "abcd")
FAR_S = 60.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with etcd_server(tmp_path_factory.mktemp("etcd") / "data") as server:
        yield server


class Placed:
    """Cluster of one shard on a, b and c, which a leads; d holds nothing."""

    def __init__(self, etcd: EtcdClient, keys: ClusterKeys) -> None:
        self.etcd, self.keys = etcd, keys
        self.lines: asyncio.Queue[str] = asyncio.Queue()

    async def make(self) -> None:
        await make_cluster(self.etcd, self.keys, shards=1, replicas=3)
        for node in (A, B, C, D):
            value = NodeValue(node[0], "127.0.0.1:1").encode()
            await self.etcd.put(self.keys.node(node), value)
            await self.etcd.put(self.keys.member(node), value)
        run = (await self.etcd.read(self.keys.node(A))).pairs[self.keys.node(A)].created
        record = ShardRecord(1, A, run, frozenset([A, B, C]), (A, B, C))
        await self.etcd.put(self.keys.shard(0), record.encode())

    async def fails(self, work: Awaitable[None], leaves: str, line: str) -> BaseException:
        """Have a node leave after a line of some work, and return how the work fails."""
        task = asyncio.ensure_future(work)
        async with asyncio.timeout(FAR_S):
            while await self.lines.get() != line:
                pass
            await self.etcd.delete(self.keys.node(leaves))
            (found,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(found, BaseException)
        return found

    async def values(self) -> dict[str, bytes]:
        return {key: pair.value for key, pair in (await self.etcd.read(self.keys.prefix)).pairs.items()}


@asynccontextmanager
async def placed(server: EtcdServer, name: str) -> AsyncIterator[Placed]:
    async with EtcdClient([server.url]) as etcd:
        found = Placed(etcd, ClusterKeys(name))
        await found.make()
        yield found


def run(server: EtcdServer, name: str, test: Callable[[Placed], Awaitable[None]]) -> None:
    async def all() -> None:
        async with placed(server, name) as found:
            await test(found)

    asyncio.run(all())


def test_replacing_takes_the_node_that_runs_when_the_lost_one_had_its_name(server: EtcdServer) -> None:
    async def test(found: Placed) -> None:
        keys, value = found.keys, NodeValue("c", "127.0.0.1:1").encode()
        await found.etcd.delete(keys.node(C))
        await found.etcd.put(keys.node(D), value)
        await found.etcd.put(keys.member(D), value)
        work = replace_node(found.etcd, keys, C, "c", timeout_s=FAR_S, progress=found.lines.put_nowait)
        assert isinstance(await found.fails(work, D, "shard 0: c copies the records"), NodeLeft)

    run(server, "same-name", test)


@pytest.mark.parametrize("shard", [None, 0])
def test_node_that_was_removed_or_replaced_takes_no_place_until_that_is_taken_back(
    server: EtcdServer, shard: int | None
) -> None:
    """It was given replicas, and the nodes took them away again, for minutes."""

    async def test(one: Placed) -> None:
        await one.etcd.put(one.keys.leaving(D), b"d")
        before = await one.values()
        with pytest.raises(ValueError, match=r"invalid node d: it was removed or replaced; .*remove --undo"):
            await replace_node(
                one.etcd, one.keys, "b", "d", only=shard, timeout_s=FAR_S, progress=one.lines.put_nowait
            )
        assert await one.values() == before

    run(server, f"leaving-{shard}", test)


def test_replacing_ends_with_the_name_of_the_new_node_when_it_leaves(server: EtcdServer) -> None:
    async def test(one: Placed) -> None:
        work = replace_node(one.etcd, one.keys, "b", "d", timeout_s=2 * FAR_S, progress=one.lines.put_nowait)
        before = await one.values()
        error = await one.fails(work, D, "shard 0: d copies the records")
        assert (type(error), str(error)) == (NodeLeft, "node d has left before it was in sync in shard 0")
        del before[one.keys.node(D)]
        after = await one.values()
        assert ShardRecord.decode(after.pop(one.keys.shard(0))).nodes == (A, B, C)
        del before[one.keys.shard(0)]
        assert after == before, "neither a pin nor a mark that b leaves stays"

    run(server, "replaced", test)


def test_replacing_puts_back_the_mark_and_the_pin_that_others_have_made_when_it_fails(
    server: EtcdServer,
) -> None:
    async def test(one: Placed) -> None:
        await one.etcd.put(one.keys.pinned(0), encode_pin((C, B, A)))
        await one.etcd.put(one.keys.leaving(B), b"b")
        work = replace_node(one.etcd, one.keys, "b", "d", timeout_s=2 * FAR_S, progress=one.lines.put_nowait)
        await one.fails(work, D, "shard 0: d copies the records")
        after = await one.values()
        assert decode_pin(after[one.keys.pinned(0)]) == (C, B, A)
        assert after[one.keys.leaving(B)] == b"b"

    run(server, "marked", test)


@pytest.mark.parametrize(
    ("is_led", "waits"), [(True, "d is not in sync"), (False, "it has no leader")], ids=["led", "unled"]
)
def test_replacing_says_what_it_has_waited_for_when_the_time_is_over(
    server: EtcdServer, is_led: bool, waits: str
) -> None:
    async def test(one: Placed) -> None:
        if not is_led:
            await one.etcd.delete(one.keys.node(A))
        with pytest.raises(TimeoutError, match=f"^shard 0: {waits}$"):
            await replace_node(one.etcd, one.keys, "b", "d", timeout_s=1, progress=one.lines.put_nowait)

    run(server, f"waits-{is_led}", test)


def test_draining_ends_with_what_is_missing_when_the_node_leaves(server: EtcdServer) -> None:
    async def test(one: Placed) -> None:
        work = drain_node(one.etcd, one.keys, "a", timeout_s=2 * FAR_S, progress=one.lines.put_nowait)
        error = await one.fails(work, A, "shard 0: it leads")
        said = "node a has left before it could be stopped: shard 0: it leads"
        assert (type(error), str(error)) == (NodeLeft, said)

    run(server, "drained", test)


def test_draining_says_what_it_has_waited_for_when_the_time_is_over(server: EtcdServer) -> None:
    async def test(one: Placed) -> None:
        with pytest.raises(TimeoutError, match=r"^shard 0: it leads$"):
            await drain_node(one.etcd, one.keys, "a", timeout_s=1, progress=one.lines.put_nowait)
        assert [
            node.name for node in (await cluster_status(one.etcd, one.keys)).nodes if node.is_draining
        ] == ["a"]

    run(server, "drains", test)


def test_removing_says_that_others_are_too_few_when_one_leaves(server: EtcdServer) -> None:
    async def test(one: Placed) -> None:
        work = remove_node(one.etcd, one.keys, "a", timeout_s=4, progress=one.lines.put_nowait)
        error = await one.fails(work, D, "a holds shard 0")
        said = "a holds shard 0; each shard has 3 replicas, and 2 other nodes run"
        assert (type(error), str(error)) == (TimeoutError, said)

    run(server, "removed", test)


def test_command_names_what_stays_when_it_is_interrupted(server: EtcdServer) -> None:
    async def test(one: Placed) -> None:
        url = f"etcd://{server.endpoint}/{one.keys.name}"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "timestone_cli", "cluster", "drain", url, "a"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"shard 0: it leads\n"
        process.send_signal(signal.SIGINT)
        _, said = await process.communicate()
        assert said == b"a is drained still, and may not be stopped yet; --undo takes it back\n"
        assert process.returncode == 130
        assert one.keys.draining(A) in await one.values()

    run(server, "interrupted", test)


def test_node_is_not_said_to_be_free_while_the_record_of_a_shard_is_gone(server: EtcdServer) -> None:
    async def test(one: Placed) -> None:
        await one.etcd.put(one.keys.placed(0), b"{}")
        await one.etcd.delete(one.keys.shard(0))
        for work in (drain_node, remove_node):
            with pytest.raises(TimeoutError, match=r"^shard 0: its record is gone from etcd$"):
                await work(one.etcd, one.keys, "a", timeout_s=1, progress=one.lines.put_nowait)

    run(server, "gone", test)


def test_replacing_says_each_step_when_the_balancer_makes_one(server: EtcdServer) -> None:
    async def test(one: Placed) -> None:
        work = replace_node(one.etcd, one.keys, "b", "d", timeout_s=FAR_S, progress=one.lines.put_nowait)
        task = asyncio.create_task(work)
        assert await one.lines.get() == "shard 0: d copies the records"
        found = (await one.etcd.read(one.keys.shard(0))).pairs[one.keys.shard(0)]
        record = ShardRecord.decode(found.value)
        moved = replace(record, isr=frozenset([A, C, D]), replicas=(A, D, C), adding=())
        await one.etcd.put(one.keys.shard(0), moved.encode())
        await task
        assert one.lines.get_nowait() == "shard 0: d has taken the place"
        assert one.lines.empty()

    run(server, "balanced", test)
