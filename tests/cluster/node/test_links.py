"""What a listener takes from a connection."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from timestone_cluster.frames import Held
from timestone_cluster.node import links
from timestone_cluster.node.links import Listener
from timestone_cluster.node.wire import Append, Hello, Message, encoded

HELD = Held(1, "telemetry-0", 5)


async def taken(*messages: Message, opened: int = 0) -> tuple[list[object], bool]:
    """Return what a listener passes on of the messages of one connection, after others were opened; and whether it has
    ended the connection before it got all of it."""
    found: list[object] = []
    listener = Listener(
        "cluster",
        found.append,
        lambda node, number, message: found.append((node, number, message)),
        lambda writer, number, message: found.append((number, message)),
    )
    port = await listener.start("127.0.0.1", 0, None)
    others = [await asyncio.open_connection("127.0.0.1", port) for _ in range(opened)]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for message in messages:
        writer.writelines(encoded(message, 3))
    writer.write_eof()
    try:
        await reader.read()
        was_reset = False
    except ConnectionError:
        was_reset = True
    for _, other in [*others, (reader, writer)]:
        other.close()
    await listener.stop()
    return found, was_reset


def test_messages_of_a_node_are_passed_on_when_it_has_said_hello() -> None:
    assert asyncio.run(taken(Hello("cluster", "b"), HELD))[0] == ["b", ("b", 3, HELD)]


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
        assert asyncio.run(taken(*messages))[0] == []
    assert "connection closed" in caplog.text
    assert "secret" not in caplog.text


def test_connection_is_refused_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "_CONNECTIONS", 3)
    assert asyncio.run(taken(Hello("cluster", "b"), opened=2))[0] == ["b"]
    assert asyncio.run(taken(Hello("cluster", "b"), opened=3))[0] == []
