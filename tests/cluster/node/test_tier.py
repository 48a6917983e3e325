"""The history of a cluster's logs in a bucket: uploaded by whichever node leads, and whole when leaders are killed."""

import asyncio
import functools
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import timestone
from tests.cluster.etcd_server import etcd_server
from tests.cluster.held_proxy import HeldProxy, held_proxy
from tests.cluster.log_cluster import KEYS, LOG, NEVER_S, LogCluster
from tests.cluster.node_processes import NodeProcess, running
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_lasting import LastingSubscriber
from tests.support.ports import reserved_port
from tests.support.s3_proxy import s3_proxy
from tests.support.s3_server import S3Server
from tests.tiering.conftest import s3, s3_environment  # noqa: F401, a fixture
from timestone_cluster.etcd.client import EtcdClient
from timestone_cluster.operations import make_cluster, make_log
from timestone_tiering.buckets.bucket_url import open_bucket
from timestone_tiering.errors import NoHistory
from timestone_tiering.objects.history import log_histories, log_places
from timestone_tiering.objects.layout import Version
from timestone_tiering.objects.manifests import LogObjects
from timestone_tiering.operations.collection import collect_unused
from timestone_tiering.operations.restore import restore_store
from timestone_tiering.reading.local_view import remote_history
from timestone_tiering.view import view_bucket

SUSPENDED_S = float(os.environ.get("TIMESTONE_CLUSTER_SECONDS", "0"))
"""How long a leader stays suspended in an upload after another one was elected."""
pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(180 + SUSPENDED_S)]

SETTINGS = {"segment_entries": 40, "local_retention_bytes": 1}


def uploaded_end(url: str) -> int:
    try:
        return log_histories(open_bucket(url))[0].manifest.end
    except NoHistory:
        return 0


def seen(node: NodeProcess) -> dict[int, bytes]:
    """Return what readers of a node see, by offset."""
    with timestone.view(node.folder) as view, remote_history(view):
        return {record.offset: bytes(record.payload) for record in view.log(LOG)}


def local_start(node: NodeProcess, log: str = LOG) -> int:
    return min((int(path.stem) for path in (node.folder / f"{log}-0").glob("*.index")), default=0)


@dataclass
class TieredCluster:
    """Three nodes with a bucket that takes an object twice under one name, each by a proxy of its own."""

    harness: LogCluster
    ways: dict[str, HeldProxy]
    """To the bucket, by the name of the node."""


@asynccontextmanager
async def tiered_cluster(
    folder: Path,
    url: str,
    s3_port: int,
    *,
    log: str = LOG,
    held: Callable[[bytes], bool] | None = None,
    more: Callable[[ExitStack], Sequence[str]] = lambda stack: (),
) -> AsyncIterator[TieredCluster]:
    """log: made with small segments. held: what proxies hold back; requests for manifests otherwise. more: options of
    a node."""
    async with AsyncExitStack() as stack:
        sockets = stack.enter_context(ExitStack())
        server = stack.enter_context(etcd_server(folder / "etcd"))
        etcd = await stack.enter_async_context(EtcdClient([server.url]))
        await make_cluster(etcd, KEYS, shards=1, replicas=3)
        await make_log(etcd, KEYS, log, SETTINGS)
        bucket = stack.enter_context(s3_proxy(s3_port))
        bucket.choose = lambda number, method, path: "overwrites"
        ways, nodes = dict[str, HeldProxy](), list[NodeProcess]()
        for name in "abc":
            way = held_proxy(bucket.port, held or puts_a_manifest)
            ways[name], address = await stack.enter_async_context(way)
            options = ("--tier", url, "--tier-endpoint", f"http://{address}", *more(sockets))
            nodes.append(NodeProcess(server, folder / name, name, *options))
        stack.enter_context(running(nodes))
        yield TieredCluster(LogCluster(server, etcd, nodes), ways)


def puts_a_manifest(request: bytes) -> bool:
    return request.startswith(b"PUT ") and b"/manifest/" in request.split(b"\r\n", 1)[0]


async def until_uploaded(url: str, end: int) -> None:
    async with asyncio.timeout(NEVER_S):
        while uploaded_end(url) < end:
            await asyncio.sleep(0.2)


async def suspend_in_an_upload(cluster: TieredCluster, url: str) -> None:
    """Suspend the leader between its segment and the manifest that names it, until another one has uploaded more; then
    the manifest arrives."""
    harness, ways = cluster.harness, cluster.ways
    for way in ways.values():
        way.hold_requests()
    async with asyncio.timeout(NEVER_S):
        while not (held := [name for name, way in ways.items() if way.has_held]):
            await asyncio.sleep(0.02)
    suspended = next(node for node in harness.nodes if node.name == held[0])
    suspended.signal(signal.SIGSTOP)
    for name in ways.keys() - {suspended.name}:
        ways[name].release()
    await harness.until_another_leads(suspended)
    await asyncio.sleep(SUSPENDED_S)
    await until_uploaded(url, uploaded_end(url) + 100)
    known, end = manifests(url), uploaded_end(url)
    ways[suspended.name].release()
    async with asyncio.timeout(NEVER_S):
        while not any(version < max(known) for version in manifests(url) - known):
            await asyncio.sleep(0.05)
    suspended.signal(signal.SIGCONT)
    await harness.until_in_sync()
    assert uploaded_end(url) >= end, "what comes late is not what readers see"


def manifests(url: str) -> set[Version]:
    bucket = open_bucket(url)
    [place] = log_places(bucket)
    return set(LogObjects(bucket, place).versions())


def test_history_is_whole_in_the_bucket_and_on_each_node_when_leaders_are_killed_or_suspended_in_an_upload(
    tmp_path: Path,
    s3_environment: S3Server,  # noqa: F811
) -> None:
    url = f"s3://{s3_environment.bucket}/cluster-{tmp_path.name}"

    async def run() -> None:
        async with tiered_cluster(tmp_path, url, s3_environment.port) as cluster:
            await check(cluster)

    async def check(cluster: TieredCluster) -> None:
        harness = cluster.harness
        await harness.until_in_sync()
        async with harness.writing(3):
            for _ in range(2):
                await until_uploaded(url, uploaded_end(url) + 100)
                leader = await harness.leader()
                leader.kill()
                await harness.until_another_leads(leader)
                leader.start()
                await harness.until_in_sync()
            await suspend_in_an_upload(cluster, url)
        async with asyncio.timeout(NEVER_S):
            while min(map(local_start, harness.nodes)) == 0:
                await asyncio.sleep(0.2)
        for node in harness.nodes:
            async with asyncio.timeout(NEVER_S):
                # Followers look now and then for what was uploaded. A node reads the bucket by the proxy of this loop.
                while 0 not in (there := await asyncio.to_thread(seen, node)):
                    await asyncio.sleep(1)
            assert {there[offset]: offset for offset in harness.acknowledged.values()} == harness.acknowledged
        for node in harness.nodes:
            node.stop()
            assert "Traceback" not in node.output(), node.output()
            assert "expected a server that honours If-None-Match" in node.output()
        history = in_bucket(url)
        assert list(history) == list(range(max(history) + 1))
        assert {payload: n for payload, n in harness.acknowledged.items() if n in history} == {
            payload: n for n, payload in history.items() if payload in harness.acknowledged
        }
        collect_orphans(url)
        assert in_bucket(url) == history
        restore_store(open_bucket(url), tmp_path / "restored")
        with timestone.open(tmp_path / "restored") as store:
            assert [bytes(record.payload) for record in store.log(LOG)] == list(history.values())

    asyncio.run(run())


def test_session_skips_nothing_when_a_replica_leads_that_has_not_asked_the_bucket(
    tmp_path: Path,
    s3_environment: S3Server,  # noqa: F811
) -> None:
    url, count = f"s3://{s3_environment.bucket}/cluster-{tmp_path.name}", 400
    addresses: list[tuple[str, int]] = []

    def listener(stack: ExitStack) -> Sequence[str]:
        addresses.append(("127.0.0.1", stack.enter_context(reserved_port())))
        return "--mqtt", f"127.0.0.1:{addresses[-1][1]}"

    reader = LastingSubscriber("reader", 4, 1, "t/#")

    def reads(place: int, done: Callable[[], bool]) -> None:
        ends_s = time.monotonic() + NEVER_S
        while not done():
            assert time.monotonic() < ends_s, len(reader.received)
            reader.run(addresses[place], done)
            time.sleep(0.1)

    def published() -> None:
        with RawClient(addresses[0]) as client:
            client.connect("writer")
            for number in range(count):
                client.publish(f"t/{number % 7}", b"%d" % number)

    async def check(cluster: TieredCluster) -> None:
        harness, way = cluster.harness, cluster.ways["c"]
        a, b, c = harness.nodes
        await harness.until_in_sync()
        await asyncio.to_thread(reads, 0, lambda: reader.subscribed)
        c.kill()
        await harness.until_in_sync(2)
        await asyncio.to_thread(published)
        await until_uploaded(url, count // 2)
        async with asyncio.timeout(NEVER_S):
            while min(local_start(node, "mqtt") for node in (a, b)) < count // 2:
                await asyncio.sleep(0.2)
        way.hold()
        c.start()
        await harness.until_in_sync()
        await harness.command("drain", a.name)  # it leads nothing while others may
        b.kill()
        await harness.until(lambda shard: shard.leader == c.node_id())
        assert "mqtt-0 begins again at offset" in c.output()
        ends_s = time.monotonic() + 3  # for what it must not send
        await asyncio.to_thread(reads, 2, lambda: time.monotonic() > ends_s)
        assert reader.received == []
        way.release()
        await asyncio.to_thread(reads, 2, lambda: len(set(reader.received)) == count)
        assert list(dict.fromkeys(reader.received)) == [b"%d" % number for number in range(count)]
        assert "the node stops" not in c.output()

    async def run() -> None:
        port = s3_environment.port
        async with tiered_cluster(
            tmp_path, url, port, log="mqtt", held=lambda data: True, more=listener
        ) as cluster:
            await check(cluster)

    asyncio.run(run())


def in_bucket(url: str) -> dict[int, bytes]:
    with view_bucket(url) as bucket:
        return {record.offset: bytes(record.payload) for record in bucket.log(LOG)}


def collect_orphans(url: str) -> None:
    """Delete what no manifest names, and require that there was a segment of the suspended leader in it."""
    collect = functools.partial(
        collect_unused, open_bucket(url), older_than_us=-1_000_000
    )  # also the newest ones
    [found] = collect(delete=True)
    assert found.error is None
    assert any(one.name.endswith(".segment") for one in found.unused), found.unused
    [found] = collect(delete=False)
    assert found.unused == ()
