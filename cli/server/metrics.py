"""Page of metrics and health of a server: `/metrics`, `/health/live` and `/health/ready`, and the little of HTTP that
they need.

Which metrics there are is up to the fronts, the tier and the store."""

import asyncio
import os
from collections.abc import Sequence
from typing import ClassVar

from timestone.address import send, shown_address

from .collection import Collection
from .exposition import OPENMETRICS_TYPE, PLAIN_TYPE, exposition, wants_openmetrics
from .health import Checks, Health, report

PATH, LIVE_PATH, READY_PATH = "/metrics", "/health/live", "/health/ready"
_PATHS = f"the metrics are at {PATH}, the health is at {LIVE_PATH} and {READY_PATH}\n"
_REQUEST_BYTES = 16 * 1024
_REQUEST_S = 10
"""A scrape is one small request at once; a slower connection is closed."""
_MOST_AT_ONCE = 100
"""Open requests; beyond that, the oldest is closed. One or two Prometheus servers connect: other clients must not keep
them out, or take the descriptors that clients of the fronts need."""


class MetricsPage:
    """Answers `GET /metrics` while a server runs."""

    name: ClassVar[str] = "metrics"

    def __init__(self, collection: Collection, host: str, port: int) -> None:
        self._collection = collection
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None
        self._answers: dict[asyncio.Task[None], None] = {}
        """A set in the order of arrival."""
        self._health = Health(collection.store, collection.parts, collection.watch)

    @property
    def address(self) -> str:
        """Return HOST:PORT, with the actual port."""
        port = self._server.sockets[0].getsockname()[1] if self._server is not None else self._port
        return shown_address(self._host, port)

    async def start(self) -> None:
        """Listen. Raises OSError that names the address."""
        try:
            self._server = await asyncio.start_server(
                self._accept, self._host, self._port, limit=_REQUEST_BYTES
            )
        except OSError as error:
            # asyncio puts the address and more into `strerror`; codes below 0 are those of getaddrinfo.
            code = error.errno or 0
            reason = os.strerror(code) if code > 0 else error.strerror
            raise OSError(error.errno, f"cannot listen on {self.address}: {reason}") from error
        self._collection.watch.start()

    async def stop(self) -> None:
        """Close the listener and all connections."""
        self._collection.watch.stop()
        if self._server is not None:
            self._server.close()
        for answer in self._answers:
            answer.cancel()
        await asyncio.gather(*self._answers, return_exceptions=True)

    def describe(self) -> list[str]:
        """Return where the page is, for people."""
        return [f"metrics on http://{self.address}{PATH}, health on {LIVE_PATH}, {READY_PATH}"]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._answers) >= _MOST_AT_ONCE:
            oldest = next(iter(self._answers))
            del self._answers[oldest]  # at once: many may arrive before the loop continues
            oldest.cancel()
        # Not left to asyncio: Python 3.11 logs a traceback for each of its own that is cancelled.
        answer = asyncio.get_running_loop().create_task(self._answer(reader, writer))
        self._answers[answer] = None
        answer.add_done_callback(lambda done: self._end(done, writer))

    def _end(self, answer: asyncio.Task[None], writer: asyncio.StreamWriter) -> None:
        """Close a connection, also that of an answer that was cancelled before it began. What was not received by now
        never will be."""
        self._answers.pop(answer, None)
        writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                send(writer, await self._response(head.decode("latin-1").split("\r\n")))
                writer.close()
                await writer.wait_closed()  # until the system has all of it
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client has closed the connection

    async def _response(self, head: Sequence[str]) -> bytes:
        """Return the response to a request of these lines."""
        method, _, rest = head[0].partition(" ")
        path = rest.split(" ", 1)[0].split("?", 1)[0]
        if method not in ("GET", "HEAD"):
            return _http("405 Method Not Allowed", "only GET and HEAD\n", method)
        if path == LIVE_PATH:
            return _health_response(self._health.live(), method)
        if path == READY_PATH:
            async with self._collection.at_the_store:
                return _health_response(await self._health.ready(), method)
        if path != PATH:
            return _http("404 Not Found", _PATHS, method)
        openmetrics = wants_openmetrics(_accepted(head[1:]))
        metrics = await self._collection.metrics()
        text = await asyncio.to_thread(exposition, metrics, openmetrics=openmetrics)
        return _http("200 OK", text, method, OPENMETRICS_TYPE if openmetrics else PLAIN_TYPE)


def _accepted(lines: Sequence[str]) -> str:
    """Return the values of all headers Accept."""
    headers = [line.partition(":") for line in lines]
    return ",".join(value for name, _, value in headers if name.strip().lower() == "accept")


def _health_response(checks: Checks, method: str) -> bytes:
    passed, text = report(checks)
    return _http("200 OK" if passed else "503 Service Unavailable", text, method, "application/json")


def _http(status: str, body: str, method: str, content_type: str = "text/plain; charset=utf-8") -> bytes:
    content = body.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(content)}\r\n"
        "Vary: Accept\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (content if method != "HEAD" else b"")
