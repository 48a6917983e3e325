"""Shards that get a leader again by command, with nodes as processes and a real etcd."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import timestone
from tests.cluster.etcd_server import eventually
from tests.cluster.log_cluster import KEYS, LOG, NEVER_S, LogCluster, log_cluster
from tests.cluster.node_processes import NodeProcess
from timestone.errors import NotLeader
from timestone_cluster.errors import ClusterError
from timestone_cluster.etcd.keys import WRITTEN_LEVEL, ClusterValue
from timestone_cluster.etcd.registry import KEEP_ALIVE_S
from timestone_cluster.moving import replace_node
from timestone_cluster.node.client import ClusterClient
from timestone_cluster.operations import make_cluster, make_log
from timestone_cluster.recovery import Report, _best, _given_up
from timestone_cluster.shard_record import ShardRecord, Unclean
from timestone_cluster.transport.wire import LogState


def report(name: str, *logs: tuple[int, int], is_damaged: bool = False, is_in_sync: bool = False) -> Report:
    """Return what a node has: last generation and end of each log."""
    states = [
        LogState(0, f"log{number}", 0, end, 0, generation, generation, is_damaged, is_in_sync)
        for number, (generation, end) in enumerate(logs)
    ]
    return Report(name, name, 1, tuple(states))


def test_replica_is_chosen_that_has_all_the_others_have_of_each_log() -> None:
    a, b, c = report("a", (3, 10), (3, 5)), report("b", (4, 8), (3, 5)), report("c", (2, 90), (3, 5))
    assert _best([a, b, c]) == b
    assert _best([a, c]) == a
    assert _best([report("a", (3, 10), (3, 5)), report("b", (3, 9), (3, 6))]) is None
    assert _best([a, report("b", (4, 8), (3, 5), is_damaged=True), c]) == a
    assert _best([report("b", (4, 8), is_damaged=True)]) is None
    assert _best([]) is None
    assert _best([report("d", (3, 10), (3, 5)), report("e", (3, 10), (3, 5), is_in_sync=True)]).name == "e"  # type: ignore[union-attr]


def test_records_resume_behind_what_nodes_in_sync_may_have_shown() -> None:
    logs = tuple(
        LogState(0, name, 0, end, 0, 1, 1, False, False, 50) for name, end in (("one", 10), ("two", 90))
    )
    chosen = Report("a", "a", 1, logs, "7")
    other = Report("b", "b", 2, (logs[0], LogState(0, "one", 0, 9, 0, 1, 1, False, False, 60)))
    assert chosen.member == "a@7"
    cluster = ClusterValue("c", 1, 3, 2, WRITTEN_LEVEL)
    found = _given_up(5, chosen, [chosen, other], cluster, {})
    assert found == (Unclean(5, "one", 10, 60), Unclean(5, "two", 90, 90))
    ahead = Report("b", "b", 2, (LogState(0, "one", 0, 70, 0, 1, 1, True, True, 60),))
    found = _given_up(5, chosen, [ahead], cluster, {"two": 3})
    assert found == (Unclean(5, "one", 10, 70), Unclean(5, "two@3", 90))
    for reports, level in (([], WRITTEN_LEVEL), ([chosen], WRITTEN_LEVEL - 1)):
        found = _given_up(5, chosen, reports, replace(cluster, level=level), {})
        assert found == (Unclean(5, "one", 10), Unclean(5, "two", 90))


@pytest.mark.slow
@pytest.mark.cluster
def test_shard_leads_again_by_command_when_its_in_sync_replicas_or_its_record_are_lost(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with log_cluster(tmp_path) as harness:
            await lose_the_in_sync_replicas(harness, tmp_path)
            await lose_the_record(harness)

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.cluster
def test_nothing_acknowledged_is_lost_when_etcd_is_restored_from_before_a_change_of_the_leader(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with log_cluster(tmp_path) as harness:
            await harness.until_in_sync()
            await harness.append(b"w0 0")
            harness.server.save_snapshot(tmp_path / "snapshot")
            for number in (1, 2):
                leader = await harness.leader()
                leader.kill()
                await harness.until_another_leads(leader)
                leader.start()
                await harness.until_in_sync()
                await harness.append(b"w0 %d" % number)
            restore(harness, tmp_path / "snapshot")
            for node in harness.nodes:
                node.start()
            await until_said(harness, "etcd was restored from the past")
            assert "would lead next" in await harness.command("repair-metadata")
            await harness.command("repair-metadata", "--yes")
            await harness.until_in_sync()
            await harness.append(b"w0 3")
            await harness.check()

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.cluster
def test_nodes_with_more_lead_after_etcd_was_restored_and_one_that_was_away_leads_first(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with log_cluster(tmp_path) as harness:
            await harness.until_in_sync()
            await harness.append(b"w0 0")
            harness.server.save_snapshot(tmp_path / "snapshot")
            away = await harness.leader()
            away.kill()
            before = await harness.until_another_leads(away)
            await harness.append(b"w0 1")
            # What no disk knows to be committed may be cut by such a leader.
            async with asyncio.timeout(NEVER_S):
                while any(shown(node) < 2 for node in harness.others(away)):
                    await asyncio.sleep(0.05)
            restore(harness, tmp_path / "snapshot")
            away.start()
            await harness.until(
                lambda shard: shard.leader == away.node_id() and shard.generation == before.generation
            )
            client = ClusterClient(harness.etcd, KEYS)
            # What it took would have the generation and the offset of a record that others have shown.
            with pytest.raises((ClusterError, NotLeader, TimeoutError)):
                async with asyncio.timeout(3):
                    await client.append(LOG, [b"w1 0"])
            await client.close()
            for node in harness.others(away):
                node.start()
            await harness.until_another_leads(away)
            await harness.until_in_sync()
            assert "nothing to repair" in await harness.command("repair-metadata")
            await harness.append(b"w0 2")
            await harness.check()

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.cluster
def test_running_nodes_take_nothing_from_an_etcd_that_was_restored_and_serve_on(tmp_path: Path) -> None:
    async def run() -> None:
        async with log_cluster(tmp_path) as harness:
            await harness.until_in_sync()
            await harness.append(b"w0 0")
            harness.server.save_snapshot(tmp_path / "snapshot")
            for _ in range(200):  # so that it stays behind for long
                await harness.etcd.put("another key", b"")
            await make_log(harness.etcd, KEYS, "late")
            # until the nodes know such a revision
            await eventually(
                lambda: all((node.folder / "late-0").exists() for node in harness.nodes), NEVER_S
            )
            harness.server.restore_snapshot(tmp_path / "snapshot")
            await until_said(harness, "etcd was restored from the past")
            await harness.append(b"w0 1")
            for node in harness.nodes:
                node.kill()
                node.start()
            await harness.append(b"w0 2")
            await harness.until_in_sync()
            await harness.check()

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.cluster
def test_running_nodes_do_not_join_a_cluster_that_was_made_in_the_place_of_theirs(tmp_path: Path) -> None:
    async def run() -> None:
        async with log_cluster(tmp_path) as harness:
            await harness.until_in_sync()
            await harness.append(b"w0 0")
            harness.server.save_snapshot(tmp_path / "snapshot")
            await harness.etcd.delete(KEYS.cluster)
            await make_cluster(harness.etcd, KEYS, shards=1, replicas=3)
            await until_said(harness, "not the one that this node has joined")
            harness.server.end_leases()
            await asyncio.sleep(3 * KEEP_ALIVE_S)
            assert not (await harness.etcd.read(f"{KEYS.prefix}nodes/")).pairs
            restore(harness, tmp_path / "snapshot")
            for node in harness.nodes:
                node.start()
            await harness.append(b"w0 1")
            await harness.until_in_sync()
            await harness.check()

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.cluster
def test_whole_replica_leads_by_command_where_the_one_with_more_has_lost_topic_names(tmp_path: Path) -> None:
    async def run() -> None:
        async with log_cluster(tmp_path) as harness:
            await harness.until_in_sync()
            assert await harness.append(b"w0 0") == 0
            left = await harness.follower()
            left.kill()
            offset = await harness.client.append_again(LOG, [b"w0 1"], topics=["late"], timeout_s=NEVER_S)
            assert offset == 1
            damaged, lost = harness.others(left)
            registered = await harness.registrations()
            for node in (damaged, lost):
                node.kill()
            await harness.until(lambda shard: not shard.is_led)
            names = damaged.folder / f"{LOG}-0" / "topics"
            names.write_bytes(names.read_bytes()[:-8])
            damaged.start()
            await harness.until_registered_again(registered, 1)
            refused = await harness.command("recover", "--shard", "0", expect=64)
            assert f"what answers is damaged, and cannot lead: {damaged.name}" in refused
            left.start()
            await harness.until_registered_again(registered, 2)
            shown = await harness.command("recover", "--shard", "0")
            assert f"{damaged.name} has more than {left.name}, but is damaged" in shown
            await harness.command("recover", "--shard", "0", "--yes")
            await harness.until(lambda shard: shard.is_led and shard.leader == left.node_id())
            lost.start()
            await harness.check()

    asyncio.run(run())


def shown(node: NodeProcess) -> int:
    """Return how many records of the log the files of a node show."""
    with timestone.view(node.folder) as view:
        return view.log(LOG, 0).end_offset


async def until_said(harness: LogCluster, words: str) -> None:
    """Wait until all nodes have logged something."""
    await eventually(lambda: all(words in node.output() for node in harness.nodes), NEVER_S)


def restore(harness: LogCluster, snapshot: Path) -> None:
    """Kill all nodes, and give etcd the data of a backup."""
    for node in harness.nodes:
        node.kill()
    harness.server.restore_snapshot(snapshot)


async def lose_the_in_sync_replicas(harness: LogCluster, folder: Path) -> None:
    """The third node lacks the second record, and leads after the two that have it are lost."""
    await harness.until_in_sync()
    leader = (await harness.leader()).name
    assert f"it has a leader, {leader}" in await harness.command("recover", "--shard", "0", expect=64)
    assert await harness.append(b"first") == 0
    left = await harness.follower()
    left.kill()
    assert await harness.append(b"lost") == 1  # after the dead one was dismissed
    lost = harness.others(left)
    ids = [node.node_id() for node in lost]
    for node in lost:
        node.kill()
        shutil.rmtree(node.folder)
    # Else the dead ones count as there, and a spare node may begin to copy, and leave: it is not taken again then.
    await harness.until(lambda shard: not shard.is_led)
    left.start()
    spares = [NodeProcess(harness.server, folder / name, name) for name in "de"]
    for node in spares:
        node.start()
    harness.nodes[:] = [left, *spares]
    await harness.until_registered(left.name, "d", "e")
    refused = await harness.command("recover", "--shard", "0", "--node", "d", expect=64)
    assert "invalid node d: expected one that answers and has a replica of shard 0" in refused
    shown = await harness.command("recover", "--shard", "0")
    assert f"records of {LOG} from offset 1 on are given up" in shown
    assert "nothing was changed" in shown
    assert not (await harness.shard()).is_led
    await harness.command("recover", "--shard", "0", "--node", left.name, "--yes")
    await harness.until(lambda shard: shard.is_led and shard.leader == left.node_id())
    for old, new in zip(ids, "de", strict=True):
        await replace_node(harness.etcd, KEYS, old, new, timeout_s=NEVER_S, progress=lambda line: None)
    assert await harness.append(b"second") == 1
    shard = await harness.until_in_sync()
    assert [(one.log, one.offset) for one in shard.unclean] == [(LOG, 1)]
    assert "began by command" in await harness.command("status")


async def lose_the_record(harness: LogCluster) -> None:
    """The record in etcd is removed, then an old one is there; both are made again from what the nodes have."""
    assert "nothing to repair" in await harness.command("repair-metadata")
    key = KEYS.shard(0)
    pair = (await harness.etcd.read(key)).pairs[key]
    record = ShardRecord.decode(pair.value)
    old = ShardRecord.first(tuple(node.node_id() for node in harness.nodes))
    for generation, value in ((record.generation, None), (record.generation + 1000, old.encode())):
        await harness.etcd.delete(key)
        if value is not None:
            await harness.etcd.put(key, value, revision=0)
        assert "would lead next" in await harness.command("repair-metadata")
        await harness.command("repair-metadata", "--yes")
        await harness.until(lambda shard, least=generation + 1000: shard.is_led and shard.generation > least)  # type: ignore[misc]
        await harness.append(b"third")
    await harness.until_in_sync()
    last = await harness.append(b"last")
    one, *others = [[each.payload for each in found] for found in await harness.stopped_with(last + 1)]
    assert all(other == one for other in others)
    assert (one[:2], one[last]) == ([b"first", b"second"], b"last")
