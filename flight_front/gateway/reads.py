"""DoGet in the gateway: the server admits the call and names the offsets, and the records come from the files. What the
view cannot read, the server reads, so that errors and records of a bucket are the same."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc

import timestone
from flight_front.errors import CallRefused, ClientGone
from flight_front.gateway.relay import ENDED, Relay, write
from flight_front.gateway.wire import READ, Progress, Span, decoded_span, encoded
from flight_front.reading import RecordStream
from flight_front.records.queries import Query, query_of_ticket
from timestone.errors import TimestoneError
from timestone.view import LogView, StoreView

_THREADS = 4
_QUICK_S, _SLOW_READS = 0.005, 16
"""A read is made in the event loop, which costs a fifth less than one in a thread, unless one of the stream's last ones
took longer than this: it waited for a disk, or decoded much."""


class Reads:
    """Reads of clients. Event-loop thread only, but for the view."""

    def __init__(self, relay: Relay, path: Path, batch_bytes: int) -> None:
        """path: of the store."""
        self._relay = relay
        self._path = path
        self._batch_bytes = batch_bytes
        self._executor = ThreadPoolExecutor(_THREADS, "read")
        self._view: StoreView | None = None
        self._view_lock = threading.Lock()

    async def get(self, context: Any) -> None:
        """Serve a DoGet."""
        call = self._relay.call(context, f"/{READ}/Read")
        try:
            sent = await self._read(context, call)
            if sent is not None:
                await write(call, encoded(sent))
            await call.done_writing()
        except ENDED:
            pass  # `answer` has the status
        except BaseException:
            call.cancel()
            raise
        try:
            await self._relay.answer(context, call)
        finally:
            call.cancel()

    async def _read(self, context: Any, call: Any) -> Progress | None:
        """Send what the files have. None if the server ends the call first. Raises one of `ENDED`."""
        request = await _request(context, call)
        if request is None:
            return None
        await write(call, request)
        schema, message = await call.read(), await call.read()
        if message is grpc.aio.EOF:
            return None
        span = decoded_span(message)
        await context.write(schema)
        if span.first == span.end:
            return Progress(span.first, 0, 0)
        query = query_of_ticket(request)
        stream = await self._in_thread(self._opened, span, query)
        return Progress(span.first, 0, 0) if stream is None else await self._send(context, call, stream, span)

    def _opened(self, span: Span, query: Query) -> RecordStream | None:
        """Return a stream over the files; None if they are not those that the server means."""
        with suppress(TimestoneError, OSError):
            log = self._log(span)
            if log.id == span.log_id and log.start_offset <= span.first and span.end <= log.end_offset:
                return RecordStream(log, query, span.first, self._batch_bytes)
        return None

    def _log(self, span: Span) -> LogView:
        with self._view_lock:
            if self._view is None:  # not earlier: a new store has no log that could be viewed
                self._view = timestone.view(self._path)
        return self._view.log(span.log, span.partition)

    async def _send(self, context: Any, call: Any, stream: RecordStream, span: Span) -> Progress:
        """Send a span; the next batch is read while one is sent, so that two are in memory."""
        size_bytes, offset, slow = 0, span.first, 1

        async def read() -> bytes | None:
            nonlocal slow
            began_s = time.monotonic()
            if slow:
                slow -= 1
                message: bytes | None = await self._in_thread(stream.read, span.end)
            else:
                message = stream.read(span.end)
            if time.monotonic() - began_s > _QUICK_S:
                slow = _SLOW_READS
            return message

        try:
            message = await read()
            while message is not None and not call.done():
                read_end, message_bytes = stream.reader.offset, len(message)
                sending = asyncio.ensure_future(_sent(context, message))
                try:
                    await asyncio.sleep(0)  # it begins before the next read, which may keep the loop
                    message = await read()
                finally:
                    await sending
                    offset, size_bytes = read_end, size_bytes + message_bytes
        except (TimestoneError, CallRefused, OSError):
            pass  # the server reads on from here, and has the error if it finds it, too
        except ClientGone:
            return Progress(None, stream.record_count, size_bytes)
        finally:
            stream.close()
        return Progress(offset, stream.record_count, size_bytes)

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)

    def close(self) -> None:
        """Close the view."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        if self._view is not None:
            self._view.close()


async def _request(context: Any, call: Any) -> bytes | None:
    """Return the message that the client sends; None if it sends none, or the server ends the call before."""
    asking, ended = asyncio.ensure_future(context.read()), asyncio.ensure_future(call.code())
    try:
        await asyncio.wait((asking, ended), return_when=asyncio.FIRST_COMPLETED)
        return asking.result() if asking.done() and isinstance(asking.result(), bytes) else None
    finally:
        asking.cancel()
        ended.cancel()


async def _sent(context: Any, message: bytes) -> None:
    """Send a message, when HTTP/2 has room for it; nothing for an empty one. Raises ClientGone."""
    try:
        if message:
            await context.write(message)
    except Exception as error:
        raise ClientGone from error
