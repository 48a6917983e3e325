"""Clients that are passed on: over real sockets, to a listener of a node that serves them by an echo."""

import asyncio
import gc
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from timestone.fronts import Arrived, Door
from timestone_cluster.node import relay
from timestone_cluster.node.relay import Place, Relays
from timestone_cluster.node.siblings import Siblings
from timestone_cluster.transport.links import Listener
from timestone_cluster.transport.wire import Hello, Message, Relay, Relayed, encoded


class Echo(asyncio.Protocol):
    """What the leader has for a client."""

    def __init__(self, keep: object) -> None:
        self.keep = keep

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert isinstance(self.transport, asyncio.Transport)
        self.transport.write(data)


class Leader:
    """A node that serves clients, or refuses them."""

    def __init__(self) -> None:
        self.asked: list[Relay] = []
        self.numbers: list[int] = []
        """Of the shards of those."""
        self.is_serving = True
        self.echoes: list[Echo] = []
        self.listener = Listener("cluster", lambda node: None, lambda *_: None, self._handle)
        self.place: Place | None = None

    async def start(self) -> None:
        port = await self.listener.start("127.0.0.1", 0, None)
        self.place = Place("a", 1, f"127.0.0.1:{port}")

    def _handle(self, writer: asyncio.StreamWriter, number: int, message: Message) -> bool:
        assert isinstance(message, Relay)
        self.asked.append(message)
        self.numbers.append(number)
        writer.writelines(encoded(Relayed("" if self.is_serving else "not now")))
        if self.is_serving:
            echo = Echo(writer)
            writer.transport.set_protocol(echo)
            echo.connection_made(writer.transport)
            self.echoes.append(echo)
        return self.is_serving


def relayed(check: Callable[[Leader, Relays, int], Awaitable[None]], *, count_limit: int = 10) -> None:
    """Run a check with a leader and the port of a door of another node."""

    async def run() -> None:
        leader = Leader()
        await leader.start()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
            door = Door(f"127.0.0.1:{port}", listening, None, lambda certificate: None, lambda data: "")
            relays = Relays([door], Hello("cluster", ""), None, lambda shard: leader.place, count_limit)
            await relays.open()
            async with asyncio.timeout(30):
                await check(leader, relays, port)
            relays.end()
            await leader.listener.stop()

    asyncio.run(run())


async def said(reader: asyncio.StreamReader) -> bytes:
    """Return what comes until the end."""
    with suppress(ConnectionError):
        return await reader.read()
    return b""


def test_bytes_go_both_ways_and_the_leader_learns_the_address_of_the_client() -> None:
    async def check(leader: Leader, relays: Relays, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        sent = b"first" + bytes(3 << 20)
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent
        host, own = writer.get_extra_info("sockname")
        assert leader.asked == [Relay(0, host, own, None)]
        assert (len(relays.clients), relays.served_count) == (1, 1)
        writer.close()
        while relays.clients:
            await asyncio.sleep(0.01)

    relayed(check)


def test_client_waits_when_no_node_serves_it_and_is_served_by_the_next_one() -> None:
    async def check(leader: Leader, relays: Relays, port: int) -> None:
        place, leader.place, leader.is_serving = leader.place, None, False
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"patient")
        await asyncio.sleep(0.2)
        assert leader.asked == []
        leader.place = place
        while not leader.asked:
            await asyncio.sleep(0.01)
        leader.is_serving = True
        assert await reader.readexactly(7) == b"patient"
        writer.close()

    relayed(check)


def test_refused_attempts_are_freed_without_the_collector() -> None:
    """With TLS each connection has a buffer of 256 KiB, and the collector of a node runs seldom."""

    async def check(leader: Leader, relays: Relays, port: int) -> None:
        leader.is_serving = False
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        while len(leader.asked) < 8:
            await asyncio.sleep(0.01)
        assert sum(isinstance(one, relay._Upper) for one in gc.get_objects()) <= 2, (
            "the present one, and an old one"
        )
        writer.close()

    gc.collect()
    gc.disable()
    try:
        relayed(check)
    finally:
        gc.enable()


def test_client_that_waits_is_served_when_its_own_node_leads() -> None:
    async def check(leader: Leader, relays: Relays, port: int) -> None:
        place, leader.place = leader.place, None
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"patient")
        while not relays.clients:
            await asyncio.sleep(0.01)
        leader.place = place
        relays.shut()
        relays.look()
        assert await reader.readexactly(7) == b"patient"
        relays.end()
        assert await said(reader) == b""

    relayed(check)


def test_client_is_closed_when_no_node_serves_it_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "_WAIT_S", 0.3)

    async def check(leader: Leader, relays: Relays, port: int) -> None:
        leader.is_serving = False
        reader, _ = await asyncio.open_connection("127.0.0.1", port)
        assert await said(reader) == b""
        assert (relays.failed_count, relays.served_count) == (1, 0)

    relayed(check)


def test_clients_are_closed_when_another_node_leads_or_their_leader_is_gone() -> None:
    async def check(leader: Leader, relays: Relays, port: int) -> None:
        for ends in (relays.look, lambda: leader.echoes[-1].transport.close()):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            assert leader.place is not None
            relays.look()  # nothing has changed
            writer.write(b"y")
            assert await reader.readexactly(1) == b"y"
            leader.place = leader.place._replace(generation=leader.place.generation + 1)
            ends()
            assert await said(reader) == b""

    relayed(check)


def test_client_is_refused_when_there_are_too_many() -> None:
    async def check(leader: Leader, relays: Relays, port: int) -> None:
        one, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x")
        assert await one.readexactly(1) == b"x"
        two, _ = await asyncio.open_connection("127.0.0.1", port)
        assert await said(two) == b""
        writer.close()

    relayed(check, count_limit=1)


class Shouting(asyncio.BufferedProtocol):
    """A client that is served here: it gets back in upper case what it has sent."""

    def __init__(self) -> None:
        self._buffer = bytearray(3)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, size_hint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        self._transport.write(bytes(self._buffer[:count]).upper())


class TwoHomes:
    """Clients whose name begins with h are at home here, in shard 0, others elsewhere, in shard 1."""

    def home_of(self, client_id: str) -> int:
        return 0 if client_id[:1] in ("h", "") else 1

    def leads(self, shard: int) -> bool:
        return shard == 0

    def admit(self, client: Arrived) -> Any:
        assert client.is_here
        return Shouting() if client.shard == 0 else None


def first_line(data: bytes) -> str | None:
    if data.startswith(b"?"):
        raise ValueError("not a name")
    return data.split(b"\n")[0].decode() if b"\n" in data else None


@pytest.mark.parametrize(
    ("pieces", "answer", "shard"),
    [
        ((b"he", b"re\nmore"), b"HERE\nMORE and more".replace(b" and more", b" AND MORE"), None),
        ((b"the", b"re\nmore"), b"there\nmore and more", 1),
        ((b"?",), b"? AND MORE", None),
    ],
)
def test_client_is_served_at_its_home_here_or_elsewhere_when_it_has_sent_who_it_is(
    pieces: tuple[bytes, ...], answer: bytes, shard: int | None
) -> None:
    async def check(leader: Leader, relays: Relays, port: int) -> None:
        relays.homes = TwoHomes()
        relays.doors = [relays.doors[0]._replace(client_id=first_line)]
        relays.shut()
        await relays.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for piece in pieces:
            await asyncio.sleep(0.1)
            assert leader.asked == []
            writer.write(piece)
        await asyncio.sleep(0.1)
        writer.write(b" and more")
        assert await reader.readexactly(len(answer)) == answer
        assert leader.numbers == ([] if shard is None else [shard])
        writer.close()

    relayed(check)


class NoHome(TwoHomes):
    """A node that leads nothing."""

    def leads(self, shard: int) -> bool:
        return False

    def admit(self, client: Arrived) -> Any:
        return None


@pytest.mark.parametrize(
    ("homes", "has_layer", "answer", "counts"),
    [
        (TwoHomes(), False, b"HERE\nMORE AND MORE", (1, 0, 0)),
        (NoHome(), False, b"here\nmore and more", (1, 0, 1)),  # given once, then passed on
        # The socket of a client with a layer has other bytes than those of the front.
        (TwoHomes(), True, b"here\nmore and more", (0, 1, 0)),
    ],
)
def test_socket_of_a_client_is_given_to_the_worker_that_leads_its_home(
    homes: TwoHomes, has_layer: bool, answer: bytes, counts: tuple[int, int, int]
) -> None:
    async def check(leader: Leader, relays: Relays, port: int) -> None:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
        assert leader.place is not None
        leader.place = leader.place._replace(name="m-1")
        layer = (lambda client: client) if has_layer else None
        door = relays.doors[0]._replace(client_id=first_line, layer=layer)
        relays.doors, relays.homes = [door], NoHome()
        relays.siblings = Siblings(pairs[0][0], {"m-1": pairs[1][1]})
        hello = Hello("cluster", "")
        other = Relays([door], hello, None, relays.place, 10, homes, Siblings(pairs[1][0], {}))
        with socket.create_server(("127.0.0.1", 0)) as listening:  # a door of its own
            other.doors = [door._replace(socket=listening)]
            await other.open()
        relays.shut()
        await relays.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"here\nmore")
        await asyncio.sleep(0.1)
        writer.write(b" and more")
        assert await reader.readexactly(len(answer)) == answer
        assert (relays.given_count, relays.served_count, other.served_count) == counts
        assert len(relays.clients) == counts[1]
        writer.close()
        other.end()
        for end in sum(pairs, ()):
            end.close()

    relayed(check)
