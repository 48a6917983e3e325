import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from flight_front.calls import Calls, read_access
from flight_front.errors import CallRefused, Code, InvalidRequest
from flight_front.messages import ClientMessages
from flight_front.settings import FlightSettings

LOG = logging.getLogger("timestone.flight")


class Context:
    """Stream with some messages, which then ends or stays silent."""

    def __init__(self, *messages: Any) -> None:
        self._messages = list(messages)

    async def read(self) -> Any:
        if not self._messages:
            await asyncio.Event().wait()
        return self._messages.pop(0)


def calls() -> Calls:
    settings = FlightSettings()
    return Calls(settings, read_access(settings, LOG), ThreadPoolExecutor(1), LOG)


def test_messages_are_returned_until_the_end() -> None:
    end = object()
    messages = ClientMessages(Context(b"a", b"b", end), calls(), 10_000)

    async def read() -> list[bytes | memoryview | None]:
        return [await messages.first(), await messages.next(), await messages.next()]

    assert asyncio.run(read()) == [b"a", b"b", None]


def test_stream_without_a_message_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="expected a message with a descriptor"):
        asyncio.run(ClientMessages(Context(object()), calls(), 10_000).first())


def test_silent_client_is_ended_and_counted() -> None:
    door = calls()
    with pytest.raises(CallRefused, match="silent for 20 ms") as refused:
        asyncio.run(ClientMessages(Context(), door, 20).next())
    assert refused.value.code is Code.DEADLINE_EXCEEDED
    assert door.counts.idle_ended == 1


def test_waiting_ends_when_the_server_stops() -> None:
    door = calls()

    async def read() -> None:
        asyncio.get_running_loop().call_soon(door.stop)
        await ClientMessages(Context(), door, 60_000).next()

    with pytest.raises(CallRefused, match="the server stops"):
        asyncio.run(read())
