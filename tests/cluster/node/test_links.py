"""What a listener takes from a connection."""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence

import pytest
import uvloop

from tests.cluster.etcd_server import eventually
from timestone_cluster.frames import Held
from timestone_cluster.node import links
from timestone_cluster.node.links import Link, Listener
from timestone_cluster.node.wire import Append, Hello, Message, encoded

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
        for _ in range(6):  # without a pause in which one could be sent
            link.put(encoded(HELD))
        await eventually(lambda: link.is_up and linked == ["b", "b"])
        link.put(encoded(HELD))
        await eventually(lambda: found == [HELD])
        task.cancel()
        await listener.stop()

    asyncio.run(run())
