"""The client of etcd, with a real one that is paused, stopped, and compacted."""

import asyncio
import signal
from collections.abc import Iterator

import pytest

from tests.cluster.etcd_server import EtcdServer, etcd_server
from timestone_cluster.errors import EtcdUnavailable, WatchEnded
from timestone_cluster.etcd.client import Change, EtcdClient

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


def test_call_ends_when_etcd_is_paused_and_works_when_it_is_back(server: EtcdServer) -> None:
    async def run() -> None:
        async with EtcdClient([server.url]) as etcd:
            await etcd.put("pause/a", b"1")
            server.signal(signal.SIGSTOP)
            try:
                with pytest.raises(EtcdUnavailable):
                    await etcd.put("pause/a", b"2")
            finally:
                server.signal(signal.SIGCONT)
            assert (await etcd.put("pause/b", b"")).is_done

    asyncio.run(run())


def test_next_endpoint_is_asked_when_one_is_dead(server: EtcdServer) -> None:
    async def run() -> None:
        async with EtcdClient(["http://127.0.0.1:1", server.url]) as etcd:
            assert (await etcd.put("dead/a", b"")).is_done
        async with EtcdClient(["http://127.0.0.1:1", "http://127.0.0.1:2"]) as etcd:
            with pytest.raises(EtcdUnavailable, match="ConnectError"):
                await etcd.read("dead/")

    asyncio.run(run())


def test_answer_of_another_server_is_refused() -> None:
    async def run(answer: bytes) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + answer)
            writer.close()

        listener = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        async with EtcdClient([f"http://127.0.0.1:{port}"]) as etcd:
            with pytest.raises(EtcdUnavailable):
                await etcd.read("a/")
        listener.close()

    for answer in (b"<html>", b"[]", b'{"error": "no"}'):
        asyncio.run(run(answer))
