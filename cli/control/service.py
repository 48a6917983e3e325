"""Control socket, server side: accepts connections of the user of the server and of root, and answers their requests
one by one.

The event loop serves it, so each request is small; what is slow runs in a thread (`actions.py`)."""

import asyncio
import logging
import os
import socket
import stat
import struct
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import ClassVar

from timestone.address import send
from timestone.errors import TimestoneError
from timestone.format.names import CONTROL_NAME
from timestone.store import Store

from .actions import Actions, Audit, Part
from .arguments import InvalidRequest
from .protocol import REPLY_BYTES, REQUEST_BYTES, InvalidLine, decode_line, encode_error, encode_result

CONNECTION_COUNT = 16
"""Open connections; further ones get an error."""
REQUEST_S = 10.0
"""Limit for a client to send a whole request, and again to read the whole reply; a slower one is disconnected."""
_CREDENTIALS = struct.Struct("3i")
_log = logging.getLogger("timestone.control")


class ControlService:
    """Answers requests on the control socket while a server runs. The caller owns the store, so a socket that is there
    already is one of a server that was killed."""

    name: ClassVar[str] = "control"

    def __init__(self, store: Store, parts: Sequence[Part], audit: Audit | None = None) -> None:
        """audit: records actions before they are done."""
        self._path = store.path
        self._actions = Actions(store, parts, audit)
        self._server: asyncio.Server | None = None
        self._folder = -1
        """Descriptor of the folder: a path may be longer than the 108 bytes of an address."""
        self._open: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen. Where the folder can have no socket, the server runs without one, and the log says so."""
        try:
            self._folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            listening = _listening(self._folder)
        except OSError as error:
            _log.warning(
                "%s: no control socket: %s; `timestone clients`, `top`, `kick` and live `configure` do not work",
                self._path / CONTROL_NAME,
                error.strerror or error,
            )
            return
        self._server = await asyncio.start_unix_server(self._accept, sock=listening, limit=REQUEST_BYTES)

    async def stop(self) -> None:
        """Close the socket, its connections and its name."""
        if self._server is not None:
            self._server.close()
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)
            self._actions.close()
            with suppress(OSError):  # the next server removes it
                os.unlink(CONTROL_NAME, dir_fd=self._folder)
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # All of a reply is below this, so a client that does not read costs one reply.
        writer.transport.set_write_buffer_limits(high=0)
        refusal = _refusal(writer)
        if refusal is None and len(self._open) >= CONNECTION_COUNT:
            refusal = encode_error(
                "too_many_connections", f"{CONNECTION_COUNT} connections are open, which is the limit"
            )
        if refusal is not None:
            with suppress(ConnectionResetError):
                send(writer, refusal)
            writer.close()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(lambda done: self._end(done, writer))

    def _end(self, task: asyncio.Task[None], writer: asyncio.StreamWriter) -> None:
        self._open.discard(task)
        writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                async with asyncio.timeout(REQUEST_S):
                    line = await _line(reader)
                async with aclosing(self._answer(line)) as reply:
                    async for part in reply:
                        send(writer, part)
                        async with asyncio.timeout(REQUEST_S):
                            await writer.drain()
                if line is None:
                    return
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the client has gone, or is too slow

    async def _answer(self, line: bytes | None) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a reply. line: None for one that is too long."""
        if line is None:
            yield encode_error("request_too_large", f"a request has at most {REQUEST_BYTES} bytes")
            return
        try:
            async with aclosing(self._actions.run(decode_line(line))) as results:
                async for result in results:
                    reply = encode_result(result)
                    if len(reply) > REPLY_BYTES:
                        yield encode_error("reply_too_large", f"a line has more than {REPLY_BYTES} bytes")
                        return
                    yield reply
        except InvalidLine as error:
            yield encode_error(error.code, str(error))
        except InvalidRequest as error:
            yield encode_error("invalid_request", str(error))
        except (TimestoneError, OSError) as error:
            yield encode_error("failed", str(error))
        except Exception:
            _log.exception("a request on the control socket failed")
            yield encode_error("internal_error", "the server failed to answer; its log has the reason")


async def _line(reader: asyncio.StreamReader) -> bytes | None:
    """Return the next line; None for one that is too long."""
    try:
        return await reader.readuntil(b"\n")
    except asyncio.LimitOverrunError:
        return None


def _listening(folder: int) -> socket.socket:
    """Return the socket, bound to its name in the folder with this descriptor. Raises OSError."""
    _remove_stale(folder)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listening.fileno(), 0o600)  # before it has a name: never open to others
        listening.bind(f"/proc/self/fd/{folder}/{CONTROL_NAME}")
        os.chmod(CONTROL_NAME, 0o600, dir_fd=folder)  # the umask may take bits away
        listening.listen(CONNECTION_COUNT)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


def _remove_stale(folder: int) -> None:
    """Remove the socket of a server that was killed. Raises FileExistsError for anything else of that name."""
    try:
        found = os.stat(CONTROL_NAME, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise FileExistsError(f"a file named {CONTROL_NAME} is in the way")
    os.unlink(CONTROL_NAME, dir_fd=folder)


def _refusal(writer: asyncio.StreamWriter) -> bytes | None:
    """Return the error for a peer that is neither the user of this process nor root, else None."""
    connection = writer.get_extra_info("socket")
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(data)
    if user in (0, os.geteuid()):
        return None
    return encode_error("not_permitted", "only the user of the server and root may use its control socket")
