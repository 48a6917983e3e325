"""HTTP/1.1 as the JSON gateway of etcd speaks it: POST over connections that stay open.

No more than that: redirects, cookies, compression and proxies are not there (docs/decisions/0165-idle-clusters.md)."""

import asyncio
import os
import select
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

_CONNECT_S = 1.0
_HEAD_S = 10.0
"""Longest time until the head of an answer, also of a watch, whose body comes as long as there are changes."""
_HEADERS = 100
_PIECE_BYTES = 1 << 16
_IDLE = 4
"""Most connections to a server that are kept for later requests."""


class NotConnected(ConnectionError):
    """No connection was made, so nothing was sent."""


class _Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def has_ended(self) -> bool:
        """Return whether an idle connection takes no request any more, also if the event loop has not seen that yet."""
        if self.writer.is_closing():
            return True
        readable = select.poll()
        readable.register(self.writer.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(readable.poll(0))


class Answer:
    """Answer to a request, whose body is read as it comes."""

    def __init__(self, reader: asyncio.StreamReader, most_bytes: int) -> None:
        """most_bytes: of a body of known length, or of one chunk."""
        self._reader, self._most_bytes = reader, most_bytes
        self.status = 0
        self._headers: dict[bytes, bytes] = {}
        self.is_whole = False
        """Whether the body was read to its end, and the connection takes another request."""

    async def read_head(self) -> None:
        """Read status and headers. Raises OSError, EOFError, ValueError."""
        version, status, *_ = (await self._line()).split(b" ")
        self.status = int(status)
        if version != b"HTTP/1.1":
            raise ValueError(f"invalid answer: expected HTTP/1.1, got {version[:20]!r}")
        for _ in range(_HEADERS):
            name, _, value = (await self._line()).partition(b":")
            if not name:
                return
            self._headers[name.lower()] = value.strip().lower()
        raise ValueError(f"invalid answer: expected up to {_HEADERS} headers, got more")

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body. Raises OSError, EOFError, ValueError."""
        if self._headers.get(b"transfer-encoding") == b"chunked":
            while size_bytes := int((await self._line()).partition(b";")[0], 16):
                yield await self._exactly(size_bytes)
                if rest := await self._line():
                    raise ValueError(
                        f"invalid answer: expected a chunk of {size_bytes} bytes, got {rest[:20]!r} behind it"
                    )
            while await self._line():  # trailers
                pass
        elif (length := self._headers.get(b"content-length")) is not None:
            yield await self._exactly(int(length))
        else:
            while piece := await self._reader.read(_PIECE_BYTES):
                yield piece
            return
        self.is_whole = self._headers.get(b"connection") != b"close"

    async def _line(self) -> bytes:
        line = await self._reader.readline()
        if not line.endswith(b"\n"):
            raise EOFError("the connection has ended within an answer")
        return line.rstrip(b"\r\n")

    async def _exactly(self, size_bytes: int) -> bytes:
        if not 0 <= size_bytes <= self._most_bytes:
            raise ValueError(f"invalid answer: expected up to {self._most_bytes} bytes, got {size_bytes}")
        return await self._reader.readexactly(size_bytes)


class HttpConnections:
    """Connections to some servers. For one event loop."""

    def __init__(self, context: ssl.SSLContext | None, most_bytes: int) -> None:
        """context: for https. most_bytes: see `Answer`."""
        self._context, self._most_bytes = context, most_bytes
        self._idle: dict[str, list[_Connection]] = {}

    def close(self) -> None:
        """Close the connections that no request uses."""
        for _, writer in (one for some in self._idle.values() for one in some):
            writer.transport.abort()
        self._idle.clear()

    @asynccontextmanager
    async def post(self, server: str, path: str, body: bytes, token: str = "") -> AsyncIterator[Answer]:
        """Send a request and give its answer. server: URL, as in http://127.0.0.1:2379. Raises NotConnected, OSError,
        EOFError, ValueError."""
        idle = self._idle.setdefault(server, [])
        while idle and idle[-1].has_ended:
            idle.pop().writer.transport.abort()
        connection = idle.pop() if idle else await self._connected(server)
        answer = Answer(connection.reader, self._most_bytes)
        try:
            secret = f"Authorization: {token}\r\n" if token else ""
            head = f"POST {path} HTTP/1.1\r\nHost: {urlsplit(server).netloc}\r\n{secret}Content-Length: {len(body)}"
            connection.writer.write(head.encode() + b"\r\n\r\n" + body)
            async with asyncio.timeout(_HEAD_S):
                await answer.read_head()
            yield answer
        finally:
            idle.append(connection)
            kept = _IDLE if answer.is_whole else 0  # where one has failed, the others may be dead as well
            while len(idle) > kept:
                idle.pop().writer.transport.abort()

    async def _connected(self, server: str) -> _Connection:
        url = urlsplit(server)
        context = None if url.scheme == "http" else self._context or ssl.create_default_context()
        try:
            async with asyncio.timeout(_CONNECT_S):
                return _Connection(*await asyncio.open_connection(url.hostname, url.port, ssl=context))
        except OSError as error:
            raise NotConnected(f"cannot connect to etcd at {server}: {words_of(error)}") from error


def words_of(error: Exception) -> str:
    """Return why a request has failed."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)  # asyncio puts the address and more into `strerror`
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
