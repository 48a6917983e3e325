"""Three nodes as processes and a real etcd, and everything that may end: checked by what their files hold."""

import asyncio
import base64
import os
import random
import shutil
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import timestone
from tests.cluster.etcd_server import EtcdServer, etcd_server, eventually
from tests.cluster.held_proxy import HeldProxy, held_proxy
from tests.cluster.log_cluster import KEYS, LOG, NEVER_S, LogCluster, log_cluster
from tests.cluster.node_processes import (
    NodeProcess,
    held,
    held_by_offset,
    running,
    wait_until_exits,
)
from tests.support.seeds import rounds, run_seed, told_on_failure
from tests.support.workload import crash_config
from timestone.errors import CorruptRecord, NotLeader
from timestone.replication.replicated_log import ReplicatedLog
from timestone.store import Store
from timestone_cluster.errors import AppendUnknown, EtcdUnavailable
from timestone_cluster.etcd.client import EtcdClient, Outcome, Picture
from timestone_cluster.etcd.keys import NodeValue
from timestone_cluster.moving import drain_node, replace_node, undrain_node
from timestone_cluster.node import held_shards
from timestone_cluster.node import node as node_module
from timestone_cluster.node.client import ClusterClient
from timestone_cluster.operations import (
    cluster_status,
    configure_cluster,
    configure_log,
    make_cluster,
    make_log,
)
from timestone_cluster.shard.shard import Shard

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

SECONDS = float(os.environ.get("TIMESTONE_CLUSTER_SECONDS", "15"))
RECORDS = rounds(20_000, "TIMESTONE_CLUSTER_RECORDS")
"""That a follower is away for; a million in the long form."""


def test_nothing_acknowledged_is_lost_when_leaders_are_killed_and_nodes_are_suspended(tmp_path: Path) -> None:
    seed = run_seed("nodes")
    with told_on_failure(TIMESTONE_SEED=seed):
        asyncio.run(_break_nodes(random.Random(seed), tmp_path))


async def _break_nodes(rng: random.Random, folder: Path) -> None:
    async with log_cluster(folder) as harness:
        await harness.until(lambda shard: shard.is_led)
        async with harness.writing(3):
            loop = asyncio.get_running_loop()
            ends_s = loop.time() + SECONDS
            faults = dict.fromkeys(("kill", "suspend", "follower", "slow", "etcd", "restart"), 0)
            while loop.time() < ends_s:
                leader = await harness.leader()
                kind = rng.choice(sorted(faults))
                faults[kind] += 1
                node = rng.choice(harness.others(leader))
                match kind:
                    case "kill":
                        leader.kill()
                        await harness.until(lambda shard: shard.is_led)
                        leader.start()
                    case "suspend":
                        leader.signal(signal.SIGSTOP)
                        await harness.until(lambda shard: shard.is_led)
                        leader.signal(signal.SIGCONT)
                    case "follower":
                        node.kill()
                        await asyncio.sleep(rng.uniform(0.1, 3))
                        node.start()
                    case "slow":
                        node.signal(signal.SIGSTOP)
                        await harness.until_in_sync(2)
                        node.signal(signal.SIGCONT)
                    case "etcd":
                        harness.server.signal(signal.SIGSTOP)
                        await asyncio.sleep(rng.uniform(0.1, 4))
                        harness.server.signal(signal.SIGCONT)
                    case "restart":
                        harness.server.stop()
                        await asyncio.sleep(rng.uniform(0.1, 4))
                        await asyncio.to_thread(harness.server.start)
                await harness.until_in_sync()
                print(harness.counts(faults), flush=True)
        memory = ", ".join(f"{node.name} {node.memory_mib()} MiB" for node in harness.nodes)
        found = await harness.check()
        print(f"{harness.counts(faults)}, {len(found)} held, memory {memory}")
        assert len(harness.acknowledged) > 100


def test_appends_continue_while_etcd_is_away_and_a_node_is_elected_when_it_is_back(tmp_path: Path) -> None:
    async def run() -> None:
        async with log_cluster(tmp_path) as harness:
            await harness.until_in_sync()
            await harness.append(b"w0 0")
            leader = await harness.leader()
            assert not [node.name for node in harness.nodes if "holds no shard" in node.output()]
            pair = (await harness.etcd.read(KEYS.shard(0))).pairs[KEYS.shard(0)]
            await harness.etcd.delete(KEYS.shard(0))  # by mistake: it is not made again, and nothing stops
            async with asyncio.timeout(NEVER_S):
                while not all("its record is gone from etcd" in node.output() for node in harness.nodes):
                    await asyncio.sleep(0.1)
            harness.acknowledged[b"w0 1"] = await harness.client.append(LOG, [b"w0 1"])
            assert (await harness.shard()).is_lost
            assert pair.value.decode() in leader.output()
            await harness.etcd.put(KEYS.shard(0), pair.value, revision=0)
            harness.server.stop()
            for number in range(2, 400):  # for longer than a lease, and more than a few flushes
                payload = b"w0 %d" % number
                harness.acknowledged[payload] = await harness.client.append(LOG, [payload])
                await asyncio.sleep(0.01)
            leader.kill()
            harness.server.start()
            await harness.until_another_leads(leader)
            leader.start()
            found = await harness.check()
            assert [one.payload for one in found[:400]] == [b"w0 %d" % number for number in range(400)]

    asyncio.run(run())


@pytest.mark.timeout(120 + RECORDS / 2000)
def test_follower_that_is_too_slow_leaves_the_in_sync_set_and_catches_up_and_a_suspended_leader_is_left(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with log_cluster(tmp_path) as harness:
            await harness.until_in_sync()
            leader = await harness.leader()
            slow = harness.others(leader)[0]
            slow.signal(signal.SIGSTOP)
            # Not acknowledged before the slow one is out: until then it may be the only other one that has the record.
            await harness.append(b"w0 0")
            shard = await harness.shard()
            assert (shard.leader, slow.node_id() in shard.in_sync) == (leader.node_id(), False)
            for first in range(1, RECORDS, 1000):
                await harness.append(*(b"w0 %0100d" % number for number in range(first, first + 1000)))
            began_s = asyncio.get_running_loop().time()
            slow.signal(signal.SIGCONT)
            await harness.until_in_sync()
            took_s = asyncio.get_running_loop().time() - began_s
            print(
                f"{RECORDS} records of 103 bytes caught up in {took_s:.1f} s, {RECORDS / took_s:.0f} a second"
            )
            leader.signal(signal.SIGSTOP)
            # It answers nothing, and its connection does not end: the client has to find out that another one leads.
            number = len(harness.acknowledged)
            with pytest.raises(AppendUnknown):
                await harness.client.append(LOG, [b"w0 %d" % number])
            harness.unknown.add(b"w0 %d" % number)
            number += 1
            await harness.append(b"w0 %d" % number)
            leader.signal(signal.SIGCONT)
            await harness.check()

    asyncio.run(run())


def test_no_node_leads_without_what_was_acknowledged_when_both_members_die_and_the_third_returns(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with log_cluster(tmp_path) as harness:
            await harness.until_in_sync()
            leader = await harness.leader()
            third, other = harness.others(leader)
            third.kill()
            for number in range(20):  # the first one is acknowledged once the dead one was dismissed
                await harness.append(b"w0 %d" % number)
            other.kill()
            await harness.until(lambda shard: shard.is_led and shard.is_short)
            shown = await harness.command("status", expect=1)
            assert "shard 0: appends wait: fewer than 2 of its in-sync replicas run" in shown
            leader.kill()
            third.start()
            await harness.until_registered(third.name)
            for _ in range(16):  # for longer than the leases of the dead ones, and the time until an election
                assert third.node_id() not in (await harness.shard()).in_sync
                assert (await harness.shard()).leader != third.node_id()
                await asyncio.sleep(0.5)
            other.start()
            await harness.until(lambda shard: shard.is_led and third.node_id() in shard.in_sync)
            leader.start()
            await harness.check()

    asyncio.run(run())


def test_drained_node_leads_nothing_and_a_replica_that_retention_has_passed_begins_again(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with log_cluster(tmp_path) as harness:
            await harness.until_in_sync()
            async with harness.writing(1):
                told: list[str] = []
                drained = await harness.leader()
                await drain_node(harness.etcd, KEYS, drained.name, timeout_s=NEVER_S, progress=told.append)
                assert told[-1] == f"{drained.name} leads no shard and may be stopped", told
                assert harness.unknown == set(), "a hand-over leaves no append of unknown outcome"
                drained.stop()
                leader = await harness.leader()
                assert leader is not drained
                await configure_log(
                    harness.etcd,
                    KEYS,
                    LOG,
                    {"segment_entries": 50, "retention_bytes": 100, "segment_age_ms": 1000},
                )
                last = max(harness.acknowledged.values())
                async with asyncio.timeout(NEVER_S):
                    while any(first_offset(node) <= last for node in harness.others(drained)):
                        await asyncio.sleep(0.1)
                drained.start()  # all that it has is deleted elsewhere
                shard = await harness.until_in_sync()
                assert shard.leader != drained.node_id()
                assert "begins again at offset" in drained.output()
                assert first_offset(drained) > last
                await undrain_node(harness.etcd, KEYS, drained.name)
                assert not any(node.is_draining for node in (await cluster_status(harness.etcd, KEYS)).nodes)
                # Of a node that does not run.
                await harness.etcd.put(KEYS.draining("0123456789abcdef"), b"gone")
                await undrain_node(harness.etcd, KEYS, "gone")
                with pytest.raises(ValueError, match="invalid node gone: it is not drained"):
                    await undrain_node(harness.etcd, KEYS, "gone")
            last = await harness.client.append_again(LOG, [b"the last one"])
            for node in harness.nodes:
                node.stop()
            one, *more = [held_by_offset(node.folder / f"{LOG}-0") for node in harness.nodes]
            for other in more:
                assert [one[offset] for offset in sorted(one.keys() & other)] == [
                    other[offset] for offset in sorted(one.keys() & other)
                ]
            for found in (one, *more):
                assert min(found) < last <= max(found)
                kept = {payload: n for payload, n in harness.acknowledged.items() if n >= min(found)}
                assert {payload: found[n].payload for payload, n in kept.items()} == {
                    one: one for one in kept
                }

    asyncio.run(run())


def first_offset(node: NodeProcess) -> int:
    """Return where the files of a node begin."""
    return min((int(path.stem) for path in (node.folder / f"{LOG}-0").glob("*.index")), default=0)


def test_node_takes_the_place_of_one_that_is_lost_and_of_one_that_leads(tmp_path: Path) -> None:
    """The lost one is back under its name with an empty disk (KIP-903), while its dismissal is on its way to etcd."""
    key = base64.b64encode(KEYS.shard(0).encode())

    async def run() -> None:
        async with held_proxy(concerns=lambda data: b"/kv/txn" in data and key in data) as (changes, address):

            def made(etcd: EtcdServer, folder: Path, name: str) -> NodeProcess:
                changes.port = etcd.port
                return NodeProcess(address, folder, name)

            async with log_cluster(tmp_path, made=made) as harness:
                await exchange(harness, changes)

    async def exchange(harness: LogCluster, changes: HeldProxy) -> None:
        await harness.until_in_sync()
        await configure_cluster(harness.etcd, KEYS, {"balance": False})
        async with harness.writing(1):
            await harness.until_more(1)
            leader = await harness.leader()
            lost, left = harness.others(leader)
            lost_id = lost.node_id()
            changes.hold_requests()
            lost.kill()
            shutil.rmtree(lost.folder)
            lost.start()
            await harness.until_registered(lost.name)
            async with asyncio.timeout(NEVER_S):
                while not changes.has_held:
                    await asyncio.sleep(0.05)
            known = len(harness.acknowledged)
            await asyncio.sleep(2)
            shard = await harness.shard()
            assert (lost_id in shard.in_sync, lost.node_id() in shard.in_sync) == (True, False)
            assert len(harness.acknowledged) == known, (
                "nothing is acknowledged that the lost one does not have"
            )
            changes.release()
            shard = await harness.until(lambda shard: lost_id not in shard.in_sync)
            assert lost.node_id() not in shard.in_sync
            told: list[str] = []
            await asyncio.gather(  # two have this name, and one of them runs
                replace_node(harness.etcd, KEYS, lost_id, lost.name, timeout_s=NEVER_S, progress=told.append),
                has_everything_once_in_sync(harness, lost),
            )
            assert told == [
                f"shard 0: {lost.name} {done}" for done in ("copies the records", "has taken the place")
            ]
            spare = NodeProcess(harness.server, tmp_path / "d", "d")
            harness.nodes.append(spare)  # in place: it is ended with the others
            spare.start()
            await harness.until_registered("d")
            await replace_node(harness.etcd, KEYS, leader.name, "d", timeout_s=NEVER_S, progress=told.append)
            assert [line.split()[-1] for line in told[2:]] == ["records", "place"], told
            shard = await harness.until_in_sync()
            members = {node.node_id() for node in (lost, left, spare)}
            assert (set(shard.replicas), set(shard.in_sync), shard.adding) == (members, members, ())
            async with asyncio.timeout(NEVER_S):
                while "another node has this one's place" not in leader.output():
                    await asyncio.sleep(0.1)
            await replace_node(harness.etcd, KEYS, leader.name, "d", timeout_s=1, progress=told.append)
            assert told[4:] == [f"{leader.name} has no replica: nothing is left to do"]
            for old, new, reason in (
                (leader.name, "f", "expected one with a replica"),
                (left.name, "d", "has a replica of shard 0"),
                (left.name, "f", "expected a registered one"),
            ):
                with pytest.raises(ValueError, match=reason):
                    await replace_node(harness.etcd, KEYS, old, new, timeout_s=1, progress=told.append)
        leader.stop()
        harness.nodes = [lost, left, spare]
        await harness.check()

    asyncio.run(run())


async def has_everything_once_in_sync(harness: LogCluster, node: NodeProcess) -> None:
    """Wait until a node is in sync, and require that it has all that was acknowledged until then."""
    async with asyncio.timeout(NEVER_S):
        while True:
            last = max(harness.acknowledged.values())
            if node.node_id() in (await harness.shard()).in_sync:
                assert len(held(node.folder / f"{LOG}-0")) > last
                return
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("finder", ["scrubber", "reader"])
def test_node_leads_no_more_when_damage_is_found_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finder: str
) -> None:
    monkeypatch.setattr(held_shards, "_DAMAGE_S", 0.1)

    async def shown(url: str) -> str:
        done = await asyncio.to_thread(
            timestone, "cluster", "status", f"{url.replace('http', 'etcd')}/{KEYS.name}"
        )
        return done.stdout

    async def run(etcd: EtcdClient, url: str) -> None:
        await make_cluster(etcd, KEYS, shards=1, replicas=1)
        await make_log(etcd, KEYS, LOG, {"segment_entries": 8})
        with Store(tmp_path / "a", crash_config(), log_type=ReplicatedLog) as store:
            failures: list[Exception] = []
            node = node_module.Node(
                store, etcd, KEYS, name="a", listen=("127.0.0.1", 0), failed=failures.append
            )
            await node.start()
            client = ClusterClient(etcd, KEYS)
            for number in range(20):  # more than two segments
                await client.append_again(LOG, [b"record %d" % number])
            assert (node.status()["leading"], node.status()["alarms"]) == (1, 0)
            assert {one.name for one in node.metrics()} == node.status().keys()
            store.sealer.settle()
            assert await asyncio.to_thread(store.scrub) == []
            path = tmp_path / "a" / f"{LOG}-0" / "00000000000000000000.segment"
            path.write_bytes(b"X" + path.read_bytes()[1:])
            if finder == "scrubber":
                assert len(await asyncio.to_thread(store.scrub)) == 1
            else:
                log = store.log(LOG)
                log.tail_lost()  # or the record is read from memory
                with pytest.raises(CorruptRecord):
                    log.read(0)
            await eventually(lambda: node.status()["alarms"] == 1)
            assert node.status()["leading"] == 0
            with pytest.raises(NotLeader):
                await client.append(LOG, [b"after it"])
            alarm = f"node a: a replica stays out: shard 0: {LOG}-0 has a damaged record\n"
            async with asyncio.timeout(NEVER_S):
                while alarm not in (said := await shown(url)):
                    assert "stays out" not in said, said
            await client.close()
            await node.stop()
            assert failures == []

    async def with_etcd(url: str) -> None:
        async with EtcdClient([url]) as etcd:
            await run(etcd, url)

    with etcd_server(tmp_path / "etcd") as server:
        asyncio.run(with_etcd(server.url))


def test_node_refuses_a_folder_of_another_cluster_and_one_without_a_cluster(tmp_path: Path) -> None:
    async def run() -> None:
        with etcd_server(tmp_path / "etcd") as server:
            node = NodeProcess(server, tmp_path / "a", "a")
            node.start()
            assert wait_until_exits(node) != 0
            assert "make it with `timestone cluster init`" in node.output()
            async with EtcdClient([server.url]) as etcd:
                await make_cluster(etcd, KEYS, shards=1, replicas=1)
                (tmp_path / "a" / "NODE").write_text('{"node": "0123456789abcdef", "cluster": "other"}')
                node.start()
                assert wait_until_exits(node) != 0
                assert "belongs to the cluster other" in node.output()

    asyncio.run(run())


def test_new_node_is_refused_while_another_one_has_its_name_and_one_that_has_joined_is_not(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        with etcd_server(tmp_path / "etcd") as server:
            async with EtcdClient([server.url]) as etcd:
                await make_cluster(etcd, KEYS, shards=1, replicas=1)
            first, renamed = (NodeProcess(server, tmp_path / "one", name) for name in "ab")
            second = NodeProcess(server, tmp_path / "two", "b")
            try:
                first.start()
                await eventually(lambda: "\nready" in first.output())
                second.start()
                await eventually(lambda: "\nready" in second.output())
                first.kill()
                renamed.start()  # it has joined before
                await eventually(lambda: renamed.output().count("\nready") == 2)
                second.kill()
                shutil.rmtree(second.folder)
                second.start()
                assert await asyncio.to_thread(wait_until_exits, second) != 0
                assert f"got 'b', which node {renamed.node_id()} at 127.0.0.1:" in second.output()
                assert not (second.folder / "NODE").exists()
            finally:
                for node in (first, renamed, second):
                    node.kill()

    asyncio.run(run())


def test_node_says_once_that_the_cluster_in_etcd_cannot_be_read_and_takes_it_again(tmp_path: Path) -> None:
    async def run() -> None:
        with etcd_server(tmp_path / "etcd") as server:
            async with EtcdClient([server.url]) as etcd:
                await make_cluster(etcd, KEYS, shards=1, replicas=1)
                (good,) = (await etcd.read(KEYS.cluster)).pairs.values()
                node = NodeProcess(server, tmp_path / "a", "a")
                with running([node]):
                    await eventually(lambda: "\nready" in node.output())
                    await etcd.put(KEYS.cluster, b'{"version": 1, "shards": %d}' % 10**30)
                    await eventually(lambda: "the cluster in etcd cannot be read: " in node.output())
                    await asyncio.sleep(3)  # it is read every 2 s as well
                    assert node.output().count("nothing is taken from it") == 1
                    await etcd.put(KEYS.cluster, good.value)
                    await eventually(lambda: "the one that this node has joined again" in node.output())

    asyncio.run(run())


def test_node_whose_port_for_mqtt_is_taken_names_mqtt(tmp_path: Path) -> None:
    async def run() -> None:
        with etcd_server(tmp_path / "etcd") as server, socket.create_server(("127.0.0.1", 0)) as taken:
            async with EtcdClient([server.url]) as etcd:
                await make_cluster(etcd, KEYS, shards=1, replicas=1)
            where = f"127.0.0.1:{taken.getsockname()[1]}"
            node = NodeProcess(server, tmp_path / "a", "a", "--mqtt", where)
            node.start()
            try:
                assert await asyncio.to_thread(wait_until_exits, node) != 0
            finally:
                node.kill()
            assert f"cluster: mqtt: cannot listen on {where}: " in node.output()

    asyncio.run(run())


def test_node_starts_when_etcd_fails_between_its_answers(tmp_path: Path) -> None:
    class Failing(EtcdClient):
        reads = 0

        async def read(self, prefix: str) -> Picture:
            self.reads += 1
            if self.reads % 2 == 0:
                raise EtcdUnavailable("connection reset by peer")
            return await super().read(prefix)

    async def run() -> None:
        with etcd_server(tmp_path / "etcd") as server:
            store = Store(tmp_path / "data", crash_config(), log_type=ReplicatedLog)
            etcd = Failing([server.url])
            await make_cluster(etcd, KEYS, shards=1, replicas=1)
            killed = NodeValue("a", "127.0.0.1:7000")  # the start waits until its registration is gone
            await etcd.put(KEYS.node("0123456789abcdef"), killed.encode(), lease=await etcd.grant(1))
            node = node_module.Node(
                store, etcd, KEYS, name="a", listen=("127.0.0.1", 0), failed=lambda error: None
            )
            await node.start()
            assert etcd.reads > 3
            await node.stop()
            store.close()

    asyncio.run(run())


def test_node_puts_the_record_of_each_new_shard_once(tmp_path: Path) -> None:
    shards, puts = 16, list[str]()

    class Counting(EtcdClient):
        async def put(self, key: str, value: bytes, **options: Any) -> Outcome:
            puts.append(key)
            return await super().put(key, value, **options)

    async def run() -> None:
        with etcd_server(tmp_path / "etcd") as server:
            store = Store(tmp_path / "data", crash_config(), log_type=ReplicatedLog)
            etcd = Counting([server.url])
            await make_cluster(etcd, KEYS, shards=shards, replicas=1)
            await make_log(etcd, KEYS, LOG)
            node = node_module.Node(
                store, etcd, KEYS, name="a", listen=("127.0.0.1", 0), failed=lambda error: None
            )
            await node.start()
            await eventually(lambda: node.status()["leading"] == shards)
            await node.stop()
            store.close()

    asyncio.run(run())
    firsts = [key for key in puts if key.startswith(KEYS.shard(0)[:-1])]
    assert sorted(set(firsts)) == sorted(map(KEYS.shard, range(shards)))
    assert len(firsts) <= 4 * shards, "its first record and its first leader, and hardly any again"


def test_node_that_is_abandoned_while_it_stops_uses_its_store_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tasks failed on the closed store, and the server ended as if by a second signal."""
    monkeypatch.setattr(Shard, "hand_over", lambda *_: True)  # as while another node may take its place

    async def run() -> None:
        failures: list[Exception] = []
        with etcd_server(tmp_path / "etcd") as server:
            store = Store(tmp_path / "data", crash_config(), log_type=ReplicatedLog)
            etcd = EtcdClient([server.url])
            await make_cluster(etcd, KEYS, shards=1, replicas=1)
            await make_log(etcd, KEYS, LOG)
            node = node_module.Node(
                store, etcd, KEYS, name="a", listen=("127.0.0.1", 0), failed=failures.append
            )
            await node.start()
            await eventually(lambda: node.status()["leading"] == 1)
            stopping = asyncio.create_task(node.stop())
            async with asyncio.timeout(NEVER_S):
                while not (await cluster_status(etcd, KEYS)).nodes[0].is_stopping:
                    await asyncio.sleep(0.02)
            await eventually(lambda: node._staying() == {})  # what another one would hand over to
            stopping.cancel()
            await asyncio.wait({stopping})
            store.close()
            await make_log(etcd, KEYS, "other")  # which a node of a closed store cannot make
            await asyncio.sleep(1)
            await etcd.close()
        assert failures == []

    asyncio.run(run())
