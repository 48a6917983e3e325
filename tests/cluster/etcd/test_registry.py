"""A picture that follows a real etcd, and a registration that comes back."""

import asyncio
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.etcd_server import EtcdServer, etcd_server, eventually
from timestone_cluster.etcd.client import EtcdClient
from timestone_cluster.etcd.keys import ClusterKeys, NodeValue
from timestone_cluster.etcd.registry import Registration, Registry
from timestone_cluster.operations import make_cluster

pytestmark = pytest.mark.slow
KEYS = ClusterKeys("plant")
VALUE = NodeValue("a", "127.0.0.1:7000")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with etcd_server(tmp_path_factory.mktemp("etcd") / "data") as server:
        yield server


def test_picture_follows_etcd_also_over_a_pause_and_a_compaction(server: EtcdServer) -> None:
    async def run() -> None:
        async with EtcdClient([server.url]) as etcd, EtcdClient([server.url]) as other:
            registry = Registry(etcd, KEYS, lambda: None)
            task = asyncio.ensure_future(registry.run())
            await other.put(KEYS.log("one"), b"")
            await eventually(lambda: "one" in registry.below("logs"))
            await other.delete(KEYS.log("one"))
            await eventually(lambda: "one" not in registry.below("logs"))
            server.signal(signal.SIGSTOP)
            await asyncio.sleep(0.1)
            server.signal(signal.SIGCONT)
            await other.put(KEYS.log("two"), b"")
            server.compact()
            await eventually(lambda: "two" in registry.below("logs"))
            await other.put(KEYS.node("n"), VALUE.encode())
            await eventually(lambda: registry.address_of("n") == VALUE.peer)
            await other.put(KEYS.node("n"), b"?")
            await eventually(lambda: registry.address_of("n") is None)
            task.cancel()

    asyncio.run(run())


def test_ids_of_nodes_are_shown_with_their_names_also_of_those_that_are_away(server: EtcdServer) -> None:
    here, away = "2bf624cae1f5ffa6", "62120d76413b25ea"

    async def run() -> None:
        async with EtcdClient([server.url]) as etcd:
            registry = Registry(etcd, KEYS, lambda: None)
            await etcd.put(KEYS.node(here), VALUE.encode())
            await etcd.put(KEYS.member(away), replace(VALUE, name="b").encode())
            await registry.refresh()
            assert (
                registry.shown(f"{here} has the place of {away}") == f"{here} (a) has the place of {away} (b)"
            )
            await etcd.put(KEYS.node(here), b"?")
            await registry.refresh()
            assert registry.shown(f"led by {here}, or none") == f"led by {here}, or none"
            await etcd.delete(KEYS.node(here))
            await etcd.delete(KEYS.member(away))

    asyncio.run(run())


def test_picture_stays_when_etcd_is_restored_from_the_past_and_nothing_is_registered_in_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The etcd has passed the revision that was known when it is read again after a while."""

    async def run(server: EtcdServer) -> None:
        async with EtcdClient([server.url]) as etcd, EtcdClient([server.url]) as other:
            await make_cluster(other, KEYS, shards=1, replicas=1)
            server.save_snapshot(tmp_path / "snapshot")
            await other.put(KEYS.log("lost"), b"")
            registry = Registry(etcd, KEYS, lambda: None)
            cluster = await registry.found_cluster(10)
            server.restore_snapshot(tmp_path / "snapshot")
            task = asyncio.ensure_future(registry.run())
            await eventually(lambda: registry.cluster_joined(cluster.id) is None)
            assert "etcd was restored from the past, from revision" in registry.refusal
            runs: list[int] = []
            registration = Registration(
                etcd, KEYS.node("a"), KEYS.member("a"), VALUE, runs.append,
                lambda: registry.cluster_joined(cluster.id) is not None,
            )  # fmt: skip
            registering = asyncio.ensure_future(registration.run())
            for number in range(10):
                await other.put(KEYS.log(f"later{number}"), b"")
            await registry.refresh()
            await asyncio.sleep(0.2)
            assert registry.below("logs").keys() == {"lost"}
            assert KEYS.node("a") not in (await other.read(KEYS.prefix)).pairs and not runs
            task.cancel()
            registering.cancel()
            again = Registry(etcd, KEYS, lambda: None)
            assert await again.found_cluster(10) == cluster == again.cluster_joined(cluster.id)
            assert "lost" not in again.below("logs")

    with etcd_server(tmp_path / "etcd") as server:
        asyncio.run(run(server))
    assert caplog.text.count("nothing is taken from it") == 1


def test_node_is_registered_again_as_another_life_when_its_lease_was_lost(server: EtcdServer) -> None:
    async def run() -> None:
        async with EtcdClient([server.url]) as etcd:
            runs: list[int] = []
            registration = Registration(
                etcd, KEYS.node("a"), KEYS.member("a"), VALUE, runs.append, lambda: True
            )
            task = asyncio.ensure_future(registration.run())
            await eventually(lambda: len(runs) == 1)
            await etcd.revoke(registration._lease)
            await eventually(lambda: len(runs) == 2)
            task.cancel()
            again = Registration(etcd, KEYS.node("a"), KEYS.member("a"), VALUE, runs.append, lambda: True)
            task = asyncio.ensure_future(again.run())  # of a process that was started before the lease ended
            await eventually(lambda: len(runs) == 3)
            task.cancel()
            assert runs[0] < runs[1] < runs[2]
            await again.end()
            assert KEYS.node("a") not in (await etcd.read(KEYS.prefix)).pairs

    asyncio.run(run())


def test_registry_ends_when_it_is_cancelled_in_the_moment_in_which_it_is_woken(server: EtcdServer) -> None:
    """On Python 3.11 `asyncio.wait_for` takes no cancellation then."""

    async def cancelled(turns: int) -> None:
        async with EtcdClient([server.url]) as etcd:
            registry = Registry(etcd, KEYS, lambda: None)
            running = asyncio.ensure_future(registry._read_often())
            await eventually(lambda: registry.is_read)
            await asyncio.sleep(0.1)  # until it waits
            registry.wake()
            for _ in range(turns):
                await asyncio.sleep(0)
            running.cancel()
            ended, _ = await asyncio.wait({running}, timeout=5)
            assert ended, f"cancelled {turns} turns of the loop after the call"

    for turns in range(6):
        asyncio.run(cancelled(turns))


def test_registration_stays_the_same_when_its_value_changes(server: EtcdServer) -> None:
    async def run() -> None:
        async with EtcdClient([server.url]) as etcd:
            runs: list[int] = []
            registry = Registry(etcd, KEYS, lambda: None)
            registration = Registration(
                etcd, KEYS.node("b"), KEYS.member("b"), VALUE, runs.append, lambda: True
            )
            tasks = [asyncio.ensure_future(one.run()) for one in (registration, registry)]
            await eventually(lambda: registry.value_of("b") == VALUE)
            changed = replace(VALUE, is_behind=True)
            registration.change(changed)
            await eventually(lambda: registry.value_of("b") == changed)
            assert registry.runs["b"] == runs[0]
            for task in tasks:
                task.cancel()
            await registration.end()
            assert KEYS.node("b") not in (await etcd.read(KEYS.prefix)).pairs

    asyncio.run(run())


def test_name_is_free_when_its_killed_node_is_gone_and_is_refused_when_one_keeps_it(
    server: EtcdServer,
) -> None:
    async def run() -> None:
        async with EtcdClient([server.url]) as etcd:
            registry = Registry(etcd, KEYS, lambda: None)
            await etcd.put(KEYS.node("killed"), VALUE.encode(), lease=await etcd.grant(1))
            await registry.refresh()
            await registry.until_free(VALUE.name)
            assert registry.address_of("killed") is None
            await etcd.put(KEYS.node("other"), replace(VALUE, name="b").encode())
            await etcd.put(KEYS.node("running"), VALUE.encode())
            await registry.refresh()
            with pytest.raises(ValueError, match=r"got 'a', which node running at 127\.0\.0\.1:7000 has"):
                await registry.until_free(VALUE.name)
            await etcd.delete(KEYS.node("running"))
            await etcd.delete(KEYS.node("other"))

    asyncio.run(run())


def test_members_are_nodes_with_the_boot_that_they_have_registered(server: EtcdServer) -> None:
    async def run() -> None:
        async with EtcdClient([server.url]) as etcd:
            keys = ClusterKeys("booted")
            registry = Registry(etcd, keys, lambda: None)
            for node, value in (("a", VALUE), ("b", replace(VALUE, boot="7"))):
                await etcd.put(keys.node(node), value.encode())
            await registry.refresh()
            assert registry.members == {"a": registry.runs["a"], "b@7": registry.runs["b"]}

    asyncio.run(run())
