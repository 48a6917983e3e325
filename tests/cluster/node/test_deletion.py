"""Deleting a log of a cluster, on real nodes and a real etcd: also on a node that was away, and below MQTT."""

import asyncio
import signal
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import timestone
from mqtt_front.codec.packets import Disconnect, Puback, Publish
from mqtt_front.codec.properties import Properties
from mqtt_front.reasons import Reason
from tests.cluster.flight_cluster import act
from tests.cluster.log_cluster import KEYS, LOG, log_cluster
from tests.cluster.mqtt_cluster import LIMIT_S, MqttCluster, last_words, mqtt_cluster, until
from tests.cluster.node_processes import NAME, NodeProcess
from tests.support.flight_server import batch, command, options, put, ticket, values_of
from tests.support.ports import reserved_port
from timestone.errors import UnknownLog
from timestone_cluster.division import Division
from timestone_cluster.errors import AppendRefused
from timestone_cluster.operations import delete_log, make_log

LASTING = Properties(session_expiry_interval=0xFFFFFFFF)
pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(300)]


def folders(node: NodeProcess, log: str = LOG) -> list[str]:
    """Return the folders that the partitions of a log have at a node, without those of deleted ones."""
    return sorted(one.name for one in node.folder.glob(f"{log}-[0-9]") if one.is_dir())


def test_log_is_gone_at_all_nodes_and_a_later_one_has_nothing_of_it_when_a_node_was_away(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with log_cluster(tmp_path) as harness:
            leader = await harness.leader()
            assert await harness.append(*(b"old %d" % one for one in range(50))) == 0
            with pytest.raises(AppendRefused, match="topic 'a/#' contains a wildcard"):
                await harness.client.append_again(LOG, [b"refused"], topics=["a/#"])
            leader.signal(signal.SIGSTOP)
            with pytest.raises(
                TimeoutError, match=r"acknowledged within 0\.2 s; attempts that may be in the log: 1;"
            ):
                await harness.client.append_again(LOG, [b"unknown"], timeout_s=0.2)
            leader.signal(signal.SIGCONT)
            away, back = harness.others(leader)
            await harness.until_held(50, [away, back])
            away.kill()
            await delete_log(harness.etcd, KEYS, LOG)
            with pytest.raises(ValueError, match=f"invalid log '{LOG}': the cluster has none"):
                await delete_log(harness.etcd, KEYS, LOG)
            with pytest.raises(UnknownLog, match=f"no log named '{LOG}' in cluster 'plant'"):
                await harness.append(b"too late")
            async with asyncio.timeout(LIMIT_S):
                while folders(leader) or folders(back):
                    await asyncio.sleep(0.05)
            assert folders(away) == [f"{LOG}-0"]
            away.start()
            async with asyncio.timeout(LIMIT_S):
                while folders(away):
                    await asyncio.sleep(0.05)
            away.kill()
            await make_log(harness.etcd, KEYS, LOG)
            assert await harness.append(b"new") == 0
            away.start()
            await harness.until_in_sync()
            assert await harness.append(b"newer") == 1
            for found in await harness.stopped_with(2):
                assert [one.payload for one in found] == [b"new", b"newer"]
            ids = set()
            for node in harness.nodes:
                with timestone.view(node.folder) as view:
                    ids.add(view.log(LOG).id)
            assert len(ids) == 1

    asyncio.run(run())


def test_node_that_was_away_over_a_deletion_and_a_new_log_has_only_the_new_one(tmp_path: Path) -> None:
    async def run() -> None:
        async with log_cluster(tmp_path) as harness:
            await harness.append(*(b"old %d" % one for one in range(50)))
            away = await harness.follower()
            await harness.until_in_sync()
            away.kill()
            for round_number in range(3):
                await delete_log(harness.etcd, KEYS, LOG)
                await make_log(harness.etcd, KEYS, LOG)
                payloads = [b"%d %d" % (round_number, one) for one in range(round_number + 1)]
                assert await harness.append(*payloads) == 0
            (await harness.leader()).kill()  # the node that was away has to be in sync by itself
            away.start()
            for node in harness.nodes:
                node.start()
            await harness.until_in_sync()
            assert await harness.append(b"last") == 3
            for found in await harness.stopped_with(4):
                assert [one.payload for one in found] == [b"2 0", b"2 1", b"2 2", b"last"]

    asyncio.run(run())


def test_records_of_each_log_are_its_own_when_logs_are_deleted_and_leaders_killed_under_load(
    tmp_path: Path,
) -> None:
    """Records acknowledged since the last deletion are at their offsets on all nodes, and nothing older is."""

    async def run() -> None:
        async with log_cluster(tmp_path) as harness:
            await harness.leader()
            acknowledged: dict[bytes, int] = {}
            number, made, first, ended = 0, 0, 0, asyncio.Event()

            async def write() -> None:
                nonlocal number
                while not ended.is_set():
                    number += 1
                    payload, log = b"%d" % number, made
                    try:
                        offset = await harness.append(payload)
                        if log == made:
                            acknowledged[payload] = offset
                    except UnknownLog:
                        await asyncio.sleep(0.02)

            writer = asyncio.create_task(write())
            for turn in range(5):
                await asyncio.sleep(1)
                node = await harness.leader()
                if turn % 2:
                    node.kill()
                await delete_log(harness.etcd, KEYS, LOG)
                made = turn + 1
                first = number + 1  # the one under way may be in the next log
                acknowledged.clear()
                if turn % 3 == 2:
                    node.kill()
                await make_log(harness.etcd, KEYS, LOG)
                node.start()
                await harness.until_in_sync()
            await asyncio.sleep(1)
            ended.set()
            await writer
            last = await harness.append(b"last")
            one, *others = [
                [each.payload for each in found] for found in await harness.stopped_with(last + 1)
            ]
            assert all(other == one for other in others)
            assert acknowledged
            assert {payload: one.index(payload) for payload in acknowledged} == acknowledged
            assert min(int(payload) for payload in one[:-1]) >= first - 1

    asyncio.run(run())


def deleted_by_command(cluster: MqttCluster, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `timestone cluster delete-log` without a terminal."""
    url = f"etcd://127.0.0.1:{cluster.etcd.port}/{NAME}"
    line = [sys.executable, "-m", "timestone_cli", "cluster", "delete-log", url, *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL)


def has_folders(node: NodeProcess) -> bool:
    return folders(node, "mqtt") == ["mqtt-0", "mqtt-1"]


def has_rows(address: str, shard: int, rows: list[bytes]) -> bool:
    """Return whether a node reads these of a partition by Flight, which only starts and may not have the log yet."""
    with fl.connect(f"grpc://{address}") as client:
        try:
            return values_of(client.do_get(ticket(log="mqtt", partition=shard), options()).read_all()) == rows
        except fl.FlightUnavailableError:
            return False
        except (fl.FlightError, pa.ArrowException) as error:
            if any(text in str(error) for text in ("no log named", "was deleted")):
                return False
            raise


def test_log_of_mqtt_begins_again_for_publishers_sessions_readers_and_producers_when_it_is_deleted(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        ports = {name: stack.enter_context(reserved_port()) for name in "abc"}
        addresses = [f"127.0.0.1:{port}" for port in ports.values()]

        def own(name: str) -> tuple[str, str]:
            return "--flight", f"127.0.0.1:{ports[name]}"

        cluster = stack.enter_context(mqtt_cluster(tmp_path, own=own, shards=2))
        topics = ["t/0", "t/1", "t/2", "t/3"]
        shards = [Division(2, ()).of_topic(topic) for topic in topics]
        assert set(shards) == {0, 1}

        def leader(shard: int = 0) -> Any:
            return fl.connect(f"grpc://{addresses[cluster.nodes.index(cluster.leader(shard))]}")

        def at_leader(kind: str, shard: int = 0, **values: Any) -> dict[str, Any]:
            with leader(shard) as client:
                return act(client, kind, log="mqtt", partition=shard, **values)

        def produce(number: int) -> dict[str, Any]:
            with leader() as client:
                [answer] = put(
                    client,
                    command(log="mqtt", producer="meter"),
                    batch([b"row %d" % number]),
                    metadata=[{"number": number}],
                )
                found: dict[str, Any] = answer
                return found

        leaders = {cluster.leader(shard).name for shard in (0, 1)}
        away = next(node for node in cluster.nodes if node.name not in leaders)
        there = cluster.others(away)
        subscriber, _ = cluster.client("desk", there[0], properties=LASTING)
        assert subscriber.subscribe("t/#") == (1,)
        publisher, _ = cluster.client("device", there[1])
        for topic in topics:
            publisher.send(Publish(topic, b"old", 1, retain=True, packet_id=1))
            publisher.expect(Puback)
        assert len(subscriber.receive(4)) == 4
        ends = [at_leader("offset-at", shard, time_us=2**53)["offset"] for shard in (0, 1)]
        assert [produce(number)["first"] for number in (0, 1)] == [ends[0], ends[0] + 1]
        assert at_leader("commit", reader="billing", offset=1) == {"committed": 1}

        away.kill()
        cluster.all_led(other_than=away)
        refused = deleted_by_command(cluster, "mqtt")
        assert (refused.returncode, "add --yes" in refused.stderr) == (64, True)
        assert "6 offsets in 2 shards" in refused.stderr
        assert "the server's own" in deleted_by_command(cluster, "mqtt-state", "--yes").stderr
        done = deleted_by_command(cluster, "mqtt", "--yes")
        assert (done.returncode, done.stdout) == (0, "log mqtt is deleted: 6 offsets in 2 shards\n")
        *_, goodbye = last_words(publisher)
        assert isinstance(goodbye, Disconnect)
        assert goodbye.reason == Reason.USE_ANOTHER_SERVER
        away.start()
        cluster.all_led(in_sync=3)

        # The nodes have made it again by themselves.
        for node, address in zip(cluster.nodes, addresses, strict=True):
            until(partial(has_folders, node))
            for shard in (0, 1):
                until(partial(has_rows, address, shard, []))
        again, answer = cluster.client("desk", away, clean=False, properties=LASTING)
        assert answer.session_present
        with cluster.client("device", there[0])[0] as publisher:
            for topic in topics:
                publisher.publish(topic, b"new")
        found = again.receive(4)
        assert {(one.topic, one.payload) for one in found} == {(topic, b"new") for topic in topics}
        again.expect_silence()
        with cluster.client("late", there[1])[0] as late:
            assert late.subscribe("t/#") == (1,)
            late.expect_silence()  # nothing old is retained
        for address in addresses:
            for shard in (0, 1):
                until(partial(has_rows, address, shard, [b"new"] * shards.count(shard)))
        assert at_leader("lags")["readers"] == []
        assert produce(0)["first"] == shards.count(0)  # not taken for one that is there
        subscriber.close()
        again.close()
