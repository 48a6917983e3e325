"""The client of etcd, with a real one that is paused, stopped, and compacted."""

import asyncio
import logging
import signal
from collections.abc import Iterator

import pytest

from tests.cluster.etcd_server import EtcdServer, answering, etcd_server
from timestone_cluster.errors import EtcdUnavailable, WatchEnded
from timestone_cluster.etcd import client
from timestone_cluster.etcd.client import Change, EtcdClient
from timestone_cluster.etcd.keys import ClusterKeys, NodeValue
from timestone_cluster.etcd.registry import Registration, Registry

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with etcd_server(tmp_path_factory.mktemp("etcd") / "data") as server:
        yield server


def test_transaction_takes_place_only_at_the_revision_that_was_read(server: EtcdServer) -> None:
    async def run() -> None:
        async with EtcdClient([server.url]) as etcd:
            made = await etcd.put("t/a", b"\0one", revision=0)
            assert made.is_done
            assert made.found is not None
            assert made.found[:2] == ("t/a", b"\0one")
            refused = await etcd.put("t/a", b"two", revision=0)
            assert (refused.is_done, refused.found) == (False, made.found)
            changed = await etcd.put("t/a", b"two", revision=made.found.revision)
            assert changed.is_done
            assert changed.found is not None
            assert changed.found.created == made.found.created
            assert changed.found.revision > made.found.revision
            picture = await etcd.read("t/")
            assert picture.pairs == {"t/a": changed.found}
            assert picture.revision >= changed.found.revision
            assert (await etcd.read("t/b")).pairs == {}

    asyncio.run(run())


def test_transaction_depends_on_the_life_of_another_key(server: EtcdServer) -> None:
    async def run() -> None:
        async with EtcdClient([server.url]) as etcd:
            other = (await etcd.put("life/a", b"")).found
            assert other is not None
            life = ("life/a", other.created)
            assert not (await etcd.put("life/b", b"", absent=life)).is_done
            assert not (await etcd.put("life/b", b"", present=("life/a", other.created + 1))).is_done
            assert (await etcd.put("life/b", b"", present=life)).is_done
            await etcd.delete("life/a")
            assert not (await etcd.put("life/b", b"", present=life)).is_done
            assert (await etcd.put("life/b", b"", absent=life)).is_done
            await etcd.put("life/a", b"")  # another life of the same key
            assert not (await etcd.put("life/b", b"", present=life)).is_done

    asyncio.run(run())


def test_key_is_put_in_place_of_another_only_at_the_revision_that_was_read(server: EtcdServer) -> None:
    async def run() -> None:
        async with EtcdClient([server.url]) as etcd:
            gone = (await etcd.put("instead/a", b"1")).found
            assert gone is not None
            await etcd.put("instead/a", b"2")
            assert not (await etcd.put("instead/b", b"3", instead=("instead/a", gone.revision))).is_done
            revision = (await etcd.read("instead/a")).pairs["instead/a"].revision
            since = revision + 1
            assert (await etcd.put("instead/b", b"3", instead=("instead/a", revision))).is_done
            assert {key: pair.value for key, pair in (await etcd.read("instead/")).pairs.items()} == {
                "instead/b": b"3"
            }
            async for changes in etcd.watch("instead/", since):
                if changes:  # both at once
                    assert {change.key: change.found is None for change in changes} == {
                        "instead/a": True,
                        "instead/b": False,
                    }
                    break
            assert not (await etcd.put("instead/b", b"4", instead=("instead/a", revision))).is_done

    asyncio.run(run())


def test_key_is_gone_when_its_lease_has_ended(server: EtcdServer) -> None:
    async def run() -> None:
        async with EtcdClient([server.url]) as etcd:
            lease = await etcd.grant(60)
            await etcd.put("lease/a", b"", lease=lease)
            assert await etcd.keep_alive(lease)
            await etcd.revoke(lease)
            assert not await etcd.keep_alive(lease)
            assert (await etcd.read("lease/")).pairs == {}

    asyncio.run(run())


def test_watch_reports_changes_and_ends_when_what_it_asks_for_was_compacted(server: EtcdServer) -> None:
    async def run() -> None:
        async with EtcdClient([server.url]) as etcd:
            first = await etcd.put("watch/a", b"1")
            assert first.found is not None
            await etcd.put("watch/a", b"2")
            await etcd.delete("watch/a")
            found: list[Change] = []
            async for changes in etcd.watch("watch/", first.found.revision):
                found += changes
                if len(found) == 3:
                    break
            assert [one.found and one.found.value for one in found] == [b"1", b"2", None]
            assert [one.revision for one in found] == [first.found.revision + n for n in range(3)]
            server.compact()
            with pytest.raises(WatchEnded):
                async for _ in etcd.watch("watch/", first.found.revision):
                    pass

    asyncio.run(run())


async def put_until_paused(etcd: EtcdClient) -> None:
    while True:  # after SIGSTOP threads of etcd may answer for a moment yet
        await etcd.put("pause/a", b"2")


def test_call_ends_when_etcd_is_paused_and_works_when_it_is_back(server: EtcdServer) -> None:
    async def run() -> None:
        async with EtcdClient([server.url]) as etcd:
            await etcd.put("pause/a", b"1")
            server.signal(signal.SIGSTOP)
            try:
                with pytest.raises(EtcdUnavailable, match=r"/v3/kv/txn: no answer in time$"):
                    await put_until_paused(etcd)
            finally:
                server.signal(signal.SIGCONT)
            assert (await etcd.put("pause/b", b"")).is_done

    asyncio.run(run())


def test_next_endpoint_is_asked_when_one_is_dead(server: EtcdServer) -> None:
    async def run() -> None:
        async with EtcdClient(["http://127.0.0.1:1", server.url]) as etcd:
            assert (await etcd.put("dead/a", b"")).is_done
        async with EtcdClient(["http://127.0.0.1:1", "http://127.0.0.1:2"]) as etcd:
            with pytest.raises(EtcdUnavailable, match=r"cannot connect to etcd at .*: Connection refused"):
                await etcd.read("dead/")

    asyncio.run(run())


def test_registration_and_picture_go_on_when_etcd_answers_oddly(caplog: pytest.LogCaptureFixture) -> None:
    keys, value = ClusterKeys("plant"), NodeValue("a", "127.0.0.1:7000")

    async def run(answer: bytes) -> None:
        async with answering(answer) as url, EtcdClient([url]) as etcd:
            registry = Registry(etcd, keys, lambda: None)
            registration = Registration(
                etcd, keys.node("a"), keys.member("a"), value, lambda run: None, lambda: True
            )
            tasks = [asyncio.ensure_future(one.run()) for one in (registry, registration)]
            async with asyncio.timeout(20):
                while "etcd fails" not in caplog.text:
                    await asyncio.sleep(0.01)
            assert not any(task.done() for task in tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    for answer in (b"null", b'{"header": {"revision": []}}'):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "timestone.cluster"):
            asyncio.run(run(answer))
        assert len(caplog.messages) == 1


def test_password_and_token_are_in_no_error() -> None:
    login = client.Login("plant", "secret-password")
    assert "secret" not in f"{login!r} {login}"

    async def run(answer: bytes, status: bytes) -> None:
        async with answering(answer, status) as url, EtcdClient([url], login=login) as etcd:
            with pytest.raises(EtcdUnavailable) as raised:
                await etcd.read("a/")
            assert "secret" not in f"{raised.value!r}"

    for status in (b"200 OK", b"400 Bad Request"):
        asyncio.run(run(b'{"name": "plant", "password": "secret-password", "tokens": "secret"}', status))
