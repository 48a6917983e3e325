"""Who may append for clients of another shard."""

import asyncio
from pathlib import Path

import pytest

from tests.cluster.node.test_forwarding import Leader, run
from timestone.address import parse_address
from timestone_cluster.fronts.state_log import STATE_LOG
from timestone_cluster.transport.wire import (
    Forward,
    Forwarded,
    ForwardOpen,
    ForwardOpened,
    Hello,
    Letter,
    encoded,
    read_message,
)

FORWARD = Forward(7, "a", ("t",), 0, 0, 0, (1).to_bytes(4, "little"), b"x")


async def dialled(leader: Leader) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    assert leader.place is not None
    reader, writer = await asyncio.open_connection(*parse_address(leader.place.address, setting="peer"))
    writer.writelines(encoded(Hello("c", "")))
    return reader, writer


async def opened(leader: Leader, opening: ForwardOpen, shard: int = 1) -> ForwardOpened:
    reader, writer = await dialled(leader)
    writer.writelines(encoded(opening, shard))
    _, answer = await read_message(reader)
    assert isinstance(answer, ForwardOpened)
    return answer


@pytest.mark.parametrize(
    ("opening", "shard", "why"),
    [
        (ForwardOpen(0, 1, 1, ("a",)), 5, "does not lead shard 5"),
        (ForwardOpen(0, 0, 1, ("a",)), 1, "another node leads shard 0"),
        (ForwardOpen(9, 1, 1, ("a",)), 1, "another node leads shard 9"),
        (ForwardOpen(0, 1, 1, ()), 1, "expected names"),
        (ForwardOpen(0, 1, 1, ("missing",)), 1, "invalid log"),
    ],
)
def test_connection_may_not_append(tmp_path: Path, opening: ForwardOpen, shard: int, why: str) -> None:
    async def check(leader: Leader) -> None:
        answer = await opened(leader, opening, shard)
        assert why in answer.error

    run(tmp_path, check)


def test_later_connection_takes_the_place_of_an_earlier_one_of_its_home(tmp_path: Path) -> None:
    async def check(leader: Leader) -> None:
        assert await opened(leader, ForwardOpen(0, 1, 5, ("a", STATE_LOG))) == ForwardOpened((0, 0))
        for turn in (4, 5):
            assert "another connection" in (await opened(leader, ForwardOpen(0, 1, turn, ("a",)))).error
        assert not (await opened(leader, ForwardOpen(0, 1, 6, ("a",)))).error
        assert not (await opened(leader, ForwardOpen(1, 1, 1, ("a",)))).error, "another home"

    run(tmp_path, check)


def test_records_are_refused_on_a_connection_that_did_not_ask_and_for_the_log_of_the_server(
    tmp_path: Path,
) -> None:
    async def check(leader: Leader) -> None:
        reader, writer = await dialled(leader)
        writer.writelines(encoded(FORWARD, 1))
        assert await reader.read() == b""
        reader, writer = await dialled(leader)
        writer.writelines(encoded(Letter(b"a message"), 1))
        assert await reader.read() == b""
        reader, writer = await dialled(leader)
        writer.writelines(encoded(ForwardOpen(0, 1, 1, ("a",)), 1))
        await read_message(reader)
        bad = [
            Forward(1, STATE_LOG, (), 0, 0, 0, b"", b""),
            Forward(2, "a", ("t",), 3, 0, 0, b"\1\0\0\0", b"x"),
            Forward(3, "a", ("t",), 0, 0, 0, b"\2\0\0\0", b"x"),
            Forward(4, "a", ("#",), 0, 0, 0, b"\1\0\0\0", b"x"),
            Forward(5, "a", ("t",), 0, -1, 0, b"\1\0\0\0", b"x"),
            Forward(6, "a", ("t",), b"\0", 0, 0, b"\1\0\0\0", b"x"),
            FORWARD,
        ]
        for message in bad:
            writer.writelines(encoded(message, 1))
        answers = [(await read_message(reader))[1] for _ in bad]
        assert answers[-1] == Forwarded(7, 0)
        assert all(isinstance(one, Forwarded) and one.error and one.first == -1 for one in answers[:-1])
        assert leader.payloads == [b"x"]

    run(tmp_path, check)
