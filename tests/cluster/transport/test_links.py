"""What links send, and a listener takes from a connection."""

import asyncio
import gc
import logging
import random
import socket
import ssl
import struct
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import pytest
import uvloop

from tests.cluster.etcd_server import eventually
from tests.support.certificates import Authority
from timestone_cluster.frames import Held, Records
from timestone_cluster.transport import links
from timestone_cluster.transport.links import Incoming, Link, Listener
from timestone_cluster.transport.wire import _HEAD, MESSAGE_BYTES, Append, Hello, Message, StoredData, encoded

HELD = Held(1, "telemetry-0", 5)


async def taken(*messages: Message) -> list[object]:
    """Return what a listener passes on of the messages of one connection."""
    found: list[object] = []

    def asked(writer: asyncio.StreamWriter, number: int, message: Message) -> bool:
        found.append((number, message))
        return False

    listener = Listener(
        "cluster",
        found.append,
        lambda node, number, message: found.append((node, number, message)),
        asked,
    )
    port = await listener.start("127.0.0.1", 0, None)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for message in messages:
        writer.writelines(encoded(message, 3))
    writer.write_eof()
    assert await ended(reader)
    writer.close()
    await listener.stop()
    return found


def test_messages_of_a_node_are_passed_on_when_it_has_said_hello() -> None:
    assert asyncio.run(taken(Hello("cluster", "b"), HELD)) == ["b", ("b", 3, HELD)]


@pytest.mark.parametrize(
    "messages",
    [
        [Hello("other", "b"), HELD],
        [Hello("cluster", "b", 2), HELD],
        [HELD, HELD],
        [Append(1, "telemetry", [], [b"secret"]), HELD],
        [Hello("cluster", "b" * 2000), HELD],
    ],
    ids=["other cluster", "other version", "no hello", "payload", "large"],
)
def test_connection_ends_when_its_first_message_is_no_hello_of_this_cluster(
    messages: Sequence[Message], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "timestone.cluster"):
        assert asyncio.run(taken(*messages)) == []
    assert "connection closed" in caplog.text
    assert "secret" not in caplog.text


def test_node_finds_a_place_when_clients_and_silent_connections_have_all_of_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links, "_CLIENTS", 3)
    monkeypatch.setattr(links, "_STRANGERS", 4)
    linked: list[str] = []
    asked: list[Message] = []

    def ask(writer: asyncio.StreamWriter, number: int, message: Message) -> bool:
        asked.append(message)
        return False

    async def run() -> None:
        listener = Listener("cluster", linked.append, lambda *_: None, ask)
        port = await listener.start("127.0.0.1", 0, None)
        clients = [await dialled(port, Hello("cluster", "")) for _ in range(3)]
        for number, (_, writer) in enumerate(clients):
            writer.writelines(encoded(Append(number, "telemetry", [], [b""])))
        await eventually(lambda: len(asked) == 3)
        refused, _ = await dialled(port, Hello("cluster", ""))
        assert await refused.read() == b""
        silent = [await dialled(port) for _ in range(4)]
        others = [await dialled(port, Hello("cluster", "b"))]
        await eventually(lambda: linked == ["b"])
        assert await ended(silent[0][0])  # gave its place to the node
        others.append(await dialled(port, Hello("cluster", "b")))
        await eventually(lambda: linked == ["b", "b"])
        assert await ended(others[0][0])  # of the same node
        for _, writer in [*clients, *silent, *others]:
            writer.close()
        await listener.stop()

    asyncio.run(run())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_link_dials_again_when_its_connection_ends_while_it_sends(run: Callable[..., None]) -> None:
    """A write to an ended connection is a RuntimeError of uvloop, which stopped the node."""
    connected: list[str] = []

    async def cut() -> None:
        listener = Listener("cluster", connected.append, lambda *_: None, lambda *_: False)
        port = await listener.start("127.0.0.1", 0, None)
        link = Link(Hello("cluster", "b"), lambda: f"127.0.0.1:{port}", None, lambda: None)
        running = asyncio.ensure_future(link.run())
        for turns in range(6):  # of the loop, between the end and a message
            await eventually(lambda: len(connected) == turns + 1 and link.is_up)  # noqa: B023
            assert link._writer is not None
            link._writer.transport.abort()
            for _ in range(turns):
                await asyncio.sleep(0)
            link.put(encoded(HELD, 3))
        await eventually(lambda: len(connected) == 7)
        assert not running.done()
        running.cancel()
        await listener.stop()

    run(cut())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_link_ends_when_it_is_cancelled_in_the_moment_in_which_its_connection_ends(
    run: Callable[..., None],
) -> None:
    """It dialled on, and a node that stopped together with others was abandoned."""

    async def cut(turns: int) -> None:
        listener = Listener("cluster", lambda _: None, lambda *_: None, lambda *_: False)
        port = await listener.start("127.0.0.1", 0, None)
        link = Link(Hello("cluster", "b"), lambda: f"127.0.0.1:{port}", None, lambda: None)
        running = asyncio.ensure_future(link.run())
        await eventually(lambda: link.is_up)
        assert link._writer is not None
        link._writer.transport.abort()
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        ended, _ = await asyncio.wait({running}, timeout=5)
        assert ended, f"cancelled {turns} turns of the loop after the end"
        await listener.stop()

    async def cuts() -> None:
        for turns in range(8):
            await cut(turns)

    run(cuts())


class Several:
    """Messages, the first of which has to be waited for."""

    def __init__(self, *messages: Message) -> None:
        self._messages = list(messages)
        self._waited = asyncio.Event()

    @property
    def is_over(self) -> bool:
        return not self._messages

    @property
    def is_ready(self) -> bool:
        return self._waited.is_set()

    def now(self) -> list[bytes]:
        return encoded(self._messages.pop(0))

    async def next(self) -> list[bytes] | None:
        await asyncio.sleep(0.01)
        self._waited.set()
        return None if self.is_over else self.now()


def test_link_sends_in_order_when_some_messages_have_to_wait() -> None:
    found: list[Message] = []
    helds = [Held(1, "telemetry-0", number) for number in range(8)]

    async def run() -> None:
        listener = Listener("cluster", lambda _: None, lambda *what: found.append(what[2]), lambda *_: False)
        port = await listener.start("127.0.0.1", 0, None)
        link = Link(Hello("cluster", "b"), lambda: f"127.0.0.1:{port}", None, lambda: None)
        task = asyncio.ensure_future(link.run())
        await eventually(lambda: link.is_up)
        link.put(encoded(helds[0]))
        assert not link._items  # sent in the call
        link.put(Several(*helds[1:4]))
        link.put(encoded(helds[4]))
        assert len(link._items) == 2
        await eventually(lambda: len(found) == 5)
        ready = Several(*helds[5:7])
        await ready.next()
        link.put(ready)
        link.put(encoded(helds[7]))
        assert not link._items
        await eventually(lambda: len(found) == 7)
        assert found == [*helds[:5], *helds[6:]]
        task.cancel()
        await listener.stop()

    asyncio.run(run())


async def dialled(port: int, *messages: Message) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for message in messages:
        writer.writelines(encoded(message))
    return reader, writer


async def ended(reader: asyncio.StreamReader) -> bool:
    """Return whether the other side ends a connection."""
    try:
        async with asyncio.timeout(20):
            return await reader.read() == b""
    except ConnectionError:
        return True


def test_link_begins_again_when_its_queue_is_full_so_that_the_other_side_asks_for_what_was_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links, "_QUEUE_ITEMS", 5)
    linked: list[str] = []
    found: list[Message] = []

    async def run() -> None:
        listener = Listener("cluster", linked.append, lambda *what: found.append(what[2]), lambda *_: False)
        port = await listener.start("127.0.0.1", 0, None)
        link = Link(Hello("cluster", "b"), lambda: f"127.0.0.1:{port}", None, lambda: None)
        task = asyncio.ensure_future(link.run())
        await eventually(lambda: link.is_up and linked == ["b"])
        assert link._writer is not None  # a peer that confirms nothing is dialled again, not waited for
        dialled = link._writer.get_extra_info("socket")
        assert dialled.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 5000
        with monkeypatch.context() as full:
            full.setattr(links, "_BUFFER_BYTES", 0)
            for _ in range(6):  # without a pause in which one could be sent
                link.put(encoded(HELD))
        await eventually(lambda: link.is_up and linked == ["b", "b"])
        link.put(encoded(HELD))
        await eventually(lambda: found == [HELD])
        task.cancel()
        await listener.stop()

    asyncio.run(run())


class Transport:
    """Transport that only ends."""

    def __init__(self) -> None:
        self.is_ended = False

    def abort(self) -> None:
        self.is_ended = True

    def is_closing(self) -> bool:
        return self.is_ended


class Received:
    """A connection, and what came over it."""

    def __init__(self, most_bytes: int = MESSAGE_BYTES) -> None:
        self.messages: list[tuple[int, Message]] = []
        self.errors: list[str] = []
        self.transport = Transport()
        self.connection = Incoming(
            lambda connection: None,
            lambda connection, shard, message: self.messages.append((shard, message)),
            lambda connection, error: self.errors.append(error),
            most_bytes,
        )
        self.connection.connection_made(cast(asyncio.Transport, self.transport))

    def take(self, data: bytes) -> None:
        """Receive bytes as an event loop does: as many as there is room for."""
        while data and not self.transport.is_ended:
            room = self.connection.get_buffer(-1)
            count = min(len(room), len(data))
            assert count
            room[:count] = data[:count]
            self.connection.buffer_updated(count)
            data = data[count:]


@pytest.mark.parametrize("most_bytes", [1, 7, 1000, 100_000, 1 << 22])
def test_messages_are_the_same_when_they_come_in_pieces_of_any_size(most_bytes: int) -> None:
    rng = random.Random(most_bytes)
    sizes = [0, 10, 31 * 1024, 33 * 1024, 300 * 1024, *(rng.randrange(5000) for _ in range(50))]
    sent: list[tuple[int, Message]] = []
    for number, size in enumerate(sizes if most_bytes > 7 else sizes[:2] + sizes[5:9]):
        data = StoredData(rng.randbytes(32), rng.randbytes(size))
        sent += [(number, Held(1, "telemetry-0", number)), (number, Records(1, "t-0", 1, 2, 1, 0, (), data))]
    whole = b"".join(b"".join(encoded(message, shard)) for shard, message in sent)
    received = Received()
    while whole:
        count = rng.randint(1, most_bytes)
        received.take(whole[:count])
        whole = whole[count:]
    assert received.messages == sent


def test_connection_ends_when_a_message_is_larger_than_it_may_be() -> None:
    received = Received(most_bytes=100)
    held = Held(1, "telemetry-0", 5)
    received.take(b"".join([*encoded(held), *encoded(Held(1, "t" * 200, 5)), *encoded(held)]))
    assert received.transport.is_ended
    received.connection.connection_lost(None)
    assert received.messages == [(0, held)]
    assert "expected up to 100 bytes" in received.errors[0]


def test_connection_is_freed_without_the_collector_when_a_message_is_invalid() -> None:
    """Each has a buffer of 256 KiB, and the collector of a node runs seldom."""
    errors: list[str] = []
    gc.disable()
    try:
        connection = Incoming(
            lambda _: None, lambda *_: None, lambda _, error: errors.append(error), MESSAGE_BYTES
        )
        connection.connection_made(cast(asyncio.Transport, Transport()))
        message = _HEAD.pack(_HEAD.size - 4 + 1, 0, 0, 1) + b"x"  # its head is no array
        connection.get_buffer(-1)[: len(message)] = message
        connection.buffer_updated(len(message))
        connection.connection_lost(None)
        kept = weakref.ref(connection)
        del connection
        assert kept() is None
    finally:
        gc.enable()
    assert errors[0].startswith("invalid message of kind Hello")


def closed(transport: asyncio.WriteTransport) -> None:
    transport.close()


def aborted(transport: asyncio.WriteTransport) -> None:
    transport.abort()


def reset(transport: asyncio.WriteTransport) -> None:
    """End it with RST, so that the other side gets an error."""
    linger = struct.pack("ii", 1, 0)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    transport.abort()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("end", [closed, aborted, reset])
def test_connections_with_tls_are_freed_without_the_collector(
    end: Callable[[asyncio.WriteTransport], None], run: Callable[..., None], tmp_path: Path
) -> None:
    """TLS of the event loop has a buffer of 256 KiB for each, and the collector of a node runs seldom."""
    authority = Authority(tmp_path)
    server = authority.issue_server()
    contexts = [
        ssl.create_default_context(purpose, cafile=authority.path)
        for purpose in (ssl.Purpose.CLIENT_AUTH, ssl.Purpose.SERVER_AUTH)
    ]
    contexts[0].load_cert_chain(server.path, server.key_path)

    def count() -> int:
        return sum(type(one).__name__ in ("SSLProtocol", "Incoming") for one in gc.get_objects())

    async def visit(listener: Listener, port: int, *messages: Message) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=contexts[1])
        writer.writelines([piece for message in messages for piece in encoded(message)])
        await eventually(lambda: len(listener._clients) == len(messages))
        end(writer.transport)
        await eventually(lambda: not listener._clients and not listener._strangers)

    async def lose(listener: Listener) -> None:
        connection = listener._nodes["b"]
        end(connection.transport)
        await eventually(lambda: listener._nodes.get("b") not in (None, connection))

    async def connect() -> None:
        listener = Listener("cluster", lambda _: None, lambda *_: None, lambda *_: False)
        port = await listener.start("127.0.0.1", 0, contexts[0])
        link = Link(Hello("cluster", "b"), lambda: f"127.0.0.1:{port}", contexts[1], lambda: None)
        running = asyncio.ensure_future(link.run())
        await eventually(lambda: "b" in listener._nodes)
        before = count()
        for _ in range(3):
            await visit(listener, port)
            await visit(listener, port, Hello("cluster", ""))
            await lose(listener)
        await eventually(lambda: count() <= before)
        running.cancel()
        await listener.stop()

    gc.collect()
    gc.disable()
    try:
        run(connect())
    finally:
        gc.enable()


def test_reader_and_writer_have_what_came_behind_the_message_that_asked_for_them() -> None:
    async def run() -> tuple[bytes, bytes]:
        served: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            served.set_result(await reader.readexactly(8))
            writer.write(b"answer")
            writer.close()

        def received(connection: Incoming, shard: int, message: Message) -> None:
            connection.become_streams(serve, 1000)

        server = await asyncio.get_running_loop().create_server(
            lambda: Incoming(lambda _: None, received, lambda _, error: None, 100), "127.0.0.1", 0
        )
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.writelines([*encoded(Held(1, "t-0", 5)), b"rest"])
        await asyncio.sleep(0.05)
        writer.write(b"more")
        answer = await reader.read()
        writer.close()
        server.close()
        return await served, answer

    assert asyncio.run(run()) == (b"restmore", b"answer")


def test_connection_of_another_boot_takes_the_place_of_the_one_before() -> None:
    async def run() -> None:
        found: list[object] = []
        listener = Listener("cluster", found.append, lambda *frame: found.append(frame), lambda *_: False)
        port = await listener.start("127.0.0.1", 0, None)
        one, _ = await dialled(port, Hello("cluster", "b@1"))
        await eventually(lambda: found == ["b@1"])
        _, writer = await dialled(port, Hello("cluster", "b@2"))
        assert await ended(one)
        writer.writelines(encoded(HELD, 3))
        await eventually(lambda: found == ["b@1", "b@2", ("b@2", 3, HELD)])
        await listener.stop()

    asyncio.run(run())
