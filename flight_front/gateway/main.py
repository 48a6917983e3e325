"""Process of the gateway. It reads its settings from standard input, and ends with it, so also when the server is
killed. Lines of JSON on standard output: the port, the end of a reload, and lines for the log of the server."""

import asyncio
import json
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc

from flight_front.gateway.batch_memory import BatchMemory
from flight_front.gateway.process import STOP, Start
from flight_front.gateway.reads import Reads
from flight_front.gateway.relay import METHODS, Relay
from flight_front.gateway.wire import SERVICE
from flight_front.listening import CHANNEL_OPTIONS, listening, read_certificates
from timestone.kernel.allocator_tuning import keep_freed_memory

_LOGGER = logging.getLogger("timestone.flight.gateway")
_STOP_S = 2.0
_BUSY_S, _AGAIN_S = 2.0, 0.1
"""How long a busy port is tried: the gateway of a server that was killed may still be ending."""
_NICENESS = 10
_KEPT_BYTES = 64 << 20
"""Freed memory that is used again: a new page for each batch costs as much as its copies."""


class _Lines(logging.Handler):
    """Handler that gives what is logged to the server."""

    def emit(self, record: logging.LogRecord) -> None:
        _say(log=[record.levelno, self.format(record)])


def _say(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def _handler(relay: Relay, reads: Reads) -> Any:
    def served(method: str) -> Callable[[Any, Any], Awaitable[None]]:
        async def serve(_: Any, context: Any) -> None:
            if method == "DoGet":
                await reads.get(context)
            else:
                await relay.forward(context, method)

        return serve

    # On the wire a call with one message is a stream of one.
    handlers = {name: grpc.stream_stream_rpc_method_handler(served(name)) for name in METHODS}
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


async def _run(start: Start, orders: asyncio.StreamReader) -> None:
    settings = start.settings
    certificates = read_certificates(settings)
    async with grpc.aio.insecure_channel(start.server, options=CHANNEL_OPTIONS) as channel:
        memory = BatchMemory(start.memory)
        os.close(start.memory)
        relay = Relay(channel, settings, memory)
        reads = Reads(relay, start.path, settings.batch_bytes)
        deadline_s = time.monotonic() + _BUSY_S
        listener = None
        while listener is None:
            try:
                listener = listening(settings, [_handler(relay, reads)], lambda: certificates)
            except OSError as error:
                if time.monotonic() > deadline_s:
                    _say(refused=str(error))
                    return
                await asyncio.sleep(_AGAIN_S)
        server, port = listener
        await server.start()
        _say(port=port)
        grace_s: float | None = None  # the server was killed: its clients notice at once
        while order := await orders.readline():
            if order == STOP:
                grace_s = _STOP_S
                break
            try:
                certificates = read_certificates(settings)
            except ValueError as error:
                _LOGGER.warning("%s", error)
            _say(reloaded=True)
        await server.stop(grace_s)
        reads.close()


async def _main() -> None:
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), sys.stdin
    )
    start = Start.decode(await orders.readline())
    try:
        await _run(start, orders)
    finally:
        # The server does the same, unless it was killed.
        shutil.rmtree(Path(start.server.removeprefix("unix:")).parent, ignore_errors=True)


if __name__ == "__main__":
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    # A terminal and a supervisor signal all processes of the server at once: this one ends after it, with its input.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # Where cores are few, those that read in bulk do not come before the devices that publish.
    os.nice(_NICENESS)
    keep_freed_memory(_KEPT_BYTES)
    logging.basicConfig(handlers=[_Lines()], level=logging.INFO)
    asyncio.run(_main())
