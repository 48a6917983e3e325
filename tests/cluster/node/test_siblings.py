"""Sockets of clients among the workers of a server, over real sockets."""

import asyncio
import os
import resource
import socket
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest

from timestone_cluster.node.siblings import EARLY_BYTES_MAX, Siblings


class Taken(NamedTuple):
    client: socket.socket
    door: int
    early: bytes


def two_workers(check: Callable[[Siblings, Siblings, "list[Taken]"], Awaitable[None]]) -> None:
    """Run a check with the first worker, the second one, which listens later, and what that takes."""

    async def run() -> None:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
        one = Siblings(pairs[0][0], {"m-1": pairs[1][1]})
        two = Siblings(pairs[1][0], {"m-0": pairs[0][1]})
        taken: list[Taken] = []
        async with asyncio.timeout(30):
            await check(one, two, taken)
        two.stop()
        for each in (*taken, *sum(pairs, ())):
            (each.client if isinstance(each, Taken) else each).close()

    asyncio.run(run())


def connected() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a TCP connection: the client, and what was accepted."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        return client, listening.accept()[0]


def test_client_stays_connected_when_its_socket_was_given_and_the_giver_closes_its_own() -> None:
    async def check(one: Siblings, two: Siblings, taken: list[Taken]) -> None:
        client, accepted = connected()
        assert one.give("m-1", accepted.fileno(), 2, b"hello")
        accepted.close()
        two.listen(lambda *words: taken.append(Taken(*words)))  # what waits is received later
        while not taken:
            await asyncio.sleep(0.01)
        assert (taken[0].door, taken[0].early) == (2, b"hello")
        assert (taken[0].client.getblocking(), taken[0].client.get_inheritable()) == (False, False)
        taken[0].client.sendall(b"back")
        assert client.recv(10) == b"back"
        client.sendall(b"on")
        await asyncio.sleep(0.01)
        assert taken[0].client.recv(10) == b"on"
        client.close()

    two_workers(check)


def test_client_stays_with_its_door_when_no_worker_can_take_it() -> None:
    async def check(one: Siblings, two: Siblings, taken: list[Taken]) -> None:
        client, accepted = connected()
        assert not one.give("m-2", accepted.fileno(), 0, b"")
        assert not one.give("m-1", accepted.fileno(), 0, bytes(EARLY_BYTES_MAX + 1))
        count = 0
        while one.give("m-1", accepted.fileno(), 0, bytes(EARLY_BYTES_MAX)):
            count += 1  # until so much waits that nothing more fits
        assert count > 2
        two.listen(lambda *words: taken.append(Taken(*words)))
        while len(taken) < count:
            await asyncio.sleep(0.01)
        assert {len(each.early) for each in taken} == {EARLY_BYTES_MAX}
        assert one.give("m-1", accepted.fileno(), 0, b"")
        for end in (client, accepted):
            end.close()

    two_workers(check)


def test_client_is_closed_and_named_in_the_log_when_no_file_can_be_opened(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def check(one: Siblings, two: Siblings, taken: list[Taken]) -> None:
        client, accepted = connected()
        assert one.give("m-1", accepted.fileno(), 0, b"first")
        accepted.close()
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
        try:
            two.listen(lambda *words: taken.append(Taken(*words)))
            while "this process may open no more files" not in caplog.text:
                await asyncio.sleep(0.01)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert client.recv(1) == b""
        other, accepted = connected()
        assert one.give("m-1", accepted.fileno(), 0, b"second")
        while not taken:
            await asyncio.sleep(0.01)
        assert taken[0].early == b"second", "the others are served"
        for end in (client, other, accepted):
            end.close()

    two_workers(check)
