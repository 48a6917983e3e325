"""Forwarding of calls to the server: messages, credentials and status as they are. Nothing is taken apart here."""

import asyncio
from contextlib import suppress
from typing import Any

import grpc

from flight_front.gateway.wire import SERVICE, forwarded
from flight_front.settings import ListenerSettings

METHODS = (
    "Handshake", "ListFlights", "GetFlightInfo", "GetSchema", "DoGet", "DoPut", "DoExchange", "DoAction",
    "ListActions",
)  # fmt: skip


class Relay:
    """Calls to the server on behalf of clients. Event-loop thread only."""

    def __init__(self, channel: Any, settings: ListenerSettings) -> None:
        """channel: to the server."""
        self._channel = channel
        self._settings = settings

    async def forward(self, context: Any, method: str) -> None:
        """Forward a call from its first message to its status."""
        call = self.call(context, f"/{SERVICE}/{method}")
        sending = asyncio.ensure_future(_send(context, call))
        try:
            await self.answer(context, call)
            if method == "Handshake":
                await _send_token(context, call)
        finally:
            sending.cancel()
            call.cancel()

    def call(self, context: Any, path: str) -> Any:
        """Begin a call to the server for the client of a context. It ends with the client's one."""
        return self._channel.stream_stream(path)(metadata=forwarded(context, self._settings))

    async def answer(self, context: Any, call: Any) -> None:
        """Forward what the server answers from now on, and its status."""
        try:
            while (message := await call.read()) is not grpc.aio.EOF:
                await context.write(message)
        except grpc.aio.AioRpcError as ended:
            await context.abort(ended.code(), ended.details() or "")


async def _send_token(context: Any, call: Any) -> None:
    """Forward the token of a login."""
    found = tuple(item for item in await call.initial_metadata() if item[0] == "authorization")
    if not found:  # a client would take the answer for a login, and its calls would fail
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the server ended during the login")
    await context.send_initial_metadata(found)


async def _send(context: Any, call: Any) -> None:
    """Forward the messages of the client. An error here is one of the call, which `answer` reports."""
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
        while (message := await context.read()) is not grpc.aio.EOF:
            await call.write(message)
        await call.done_writing()
