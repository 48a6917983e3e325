"""Forwarding of calls to the server: messages, credentials and status as they are. Nothing is taken apart here."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import grpc

from flight_front.gateway.batch_memory import BatchMemory, CallSlots
from flight_front.gateway.wire import SERVICE, forwarded, granted_slots
from flight_front.messages import half_closed
from flight_front.settings import ListenerSettings

METHODS = (
    "Handshake", "ListFlights", "GetFlightInfo", "GetSchema", "DoGet", "DoPut", "DoExchange", "DoAction",
    "ListActions",
)  # fmt: skip

ENDED = (grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.InvalidStateError)
"""What an operation of a call raises when it has ended."""


class Relay:
    """Calls to the server on behalf of clients. Event-loop thread only."""

    def __init__(self, channel: Any, settings: ListenerSettings, memory: BatchMemory) -> None:
        """channel: to the server. memory: shared with it."""
        self._memory = memory
        self._channel = channel
        self._settings = settings

    async def forward(self, context: Any, method: str) -> None:
        """Forward a call from its first message to its status."""
        call = self.call(context, f"/{SERVICE}/{method}")
        is_login, sending = method == "Handshake", None
        try:
            # First, because gRPC may report the end of a call without the metadata before it, and the server ends a
            # login after its client.
            has_token = is_login and await _send_token(context, call)
            if is_login and not has_token:
                await half_closed(context)
            send = self._send_batches if method == "DoPut" else _send
            sending = asyncio.ensure_future(send(context, call))
            await self.answer(context, call)
            if is_login and not has_token:
                # The client would take the answer for a login, and its calls would fail.
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the login ended without a token")
        finally:
            if sending is not None:
                sending.cancel()
            call.cancel()

    def call(self, context: Any, path: str) -> Any:
        """Begin a call to the server for the client of a context. It ends with the client's one."""
        return self._channel.stream_stream(path)(metadata=forwarded(context, self._settings))

    async def _send_batches(self, context: Any, call: Any) -> None:
        """Forward the messages of a DoPut, batches through memory once the server has granted some."""
        slots = CallSlots(self._memory)
        with suppress(*ENDED):
            if (message := await context.read()) is not grpc.aio.EOF:
                await write(call, slots.message(message))
                slots.use(granted_slots(await call.initial_metadata()))
            await _send(context, call, slots.message)

    async def answer(self, context: Any, call: Any) -> None:
        """Forward what the server answers from now on, and its status."""
        try:
            while (message := await call.read()) is not grpc.aio.EOF:
                await context.write(message)
        except grpc.aio.AioRpcError as ended:
            code, text = ended.code(), ended.details() or ""
            if code is grpc.StatusCode.CANCELLED:  # not by the client, which would take no answer
                code, text = grpc.StatusCode.UNAVAILABLE, "the server stops"
            await context.abort(code, text)


async def _send_token(context: Any, call: Any) -> bool:
    """Forward the token of a login; return False if the server gives none."""
    found = tuple(item for item in await call.initial_metadata() if item[0] == "authorization")
    if found:
        await context.send_initial_metadata(found)
    return bool(found)


async def _send(context: Any, call: Any, sent: Callable[[bytes], bytes] = bytes) -> None:
    """Forward the messages of the client, each as what `sent` returns for it. An error here is one of the call, which
    `answer` reports."""
    with suppress(*ENDED):
        while (message := await context.read()) is not grpc.aio.EOF:
            await write(call, sent(message))
        await call.done_writing()


async def write(call: Any, message: bytes) -> None:
    """Send a message to the server. Raises one of `ENDED` when the call has ended."""
    await call.wait_for_connection()
    # Not `call.write`: when the server has just ended the call, it puts an internal error in the place of the status.
    # No public way of grpcio avoids that; without the attribute, only such a status is lost (decision 92).
    own = getattr(call, "_cython_call", None)
    send = call.write if own is None else own.send_serialized_message
    await send(message)
