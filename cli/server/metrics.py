"""What a server counts, for Prometheus: the text format, and the little of HTTP that a scrape needs.

Which figures there are is up to the fronts (`status`) and the store.
"""

import asyncio
import logging
import os
from collections.abc import Iterator, Sequence
from typing import ClassVar

from timestone.address import shown_address
from timestone.errors import TimestoneError
from timestone.fronts import Counting, Front
from timestone.store import Store

from ..process.version import timestone_version

PATH = "/metrics"
_REQUEST_BYTES = 16 * 1024
_REQUEST_S = 10
"""A scrape is one small request at once: who takes longer wants something else."""
_MOST_AT_ONCE = 100
"""Requests that are open; beyond that, the one that has waited longest goes. There is one Prometheus or there are two:
nobody else shall keep them out, or take the descriptors that clients of the fronts need."""
_log = logging.getLogger("timestone.metrics")


class MetricsPage:
    """Answers `GET /metrics` while a server runs."""

    name: ClassVar[str] = "metrics"

    def __init__(self, store: Store, fronts: Sequence[Front], host: str, port: int) -> None:
        self._store = store
        self._fronts = fronts
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None
        self._answers: dict[asyncio.Task[None], None] = {}
        """A set in the order of arrival."""
        self._at_the_store = asyncio.Lock()
        """One look at a time: it needs a thread, and the fronts have use for the others."""

    @property
    def address(self) -> str:
        """HOST:PORT, with the port it got."""
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

    async def stop(self) -> None:
        """Answer nobody any more."""
        if self._server is not None:
            self._server.close()
        for answer in self._answers:
            answer.cancel()
        await asyncio.gather(*self._answers, return_exceptions=True)

    def describe(self) -> list[str]:
        """Where the page is, for people."""
        return [f"metrics on http://{self.address}{PATH}"]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._answers) >= _MOST_AT_ONCE:
            oldest = next(iter(self._answers))
            del self._answers[oldest]  # at once: many may come before the loop gets to it
            oldest.cancel()
        # Not left to asyncio: Python 3.11 logs a traceback for each of its own that is cancelled.
        answer = asyncio.get_running_loop().create_task(self._answer(reader, writer))
        self._answers[answer] = None
        answer.add_done_callback(lambda done: self._end(done, writer))

    def _end(self, answer: asyncio.Task[None], writer: asyncio.StreamWriter) -> None:
        """Also of an answer that was cancelled before it began. Whoever has not taken it by now, never does."""
        self._answers.pop(answer, None)
        writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._response(head.split(b"\r\n", 1)[0].decode("ascii", "replace")))
                writer.close()
                await writer.wait_closed()  # until the system has all of it
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever asked has left, or never asked

    async def _response(self, request: str) -> bytes:
        method, _, rest = request.partition(" ")
        path = rest.split(" ", 1)[0].split("?", 1)[0]
        if method not in ("GET", "HEAD"):
            return _http("405 Method Not Allowed", "only GET and HEAD\n", method)
        if path != PATH:
            return _http("404 Not Found", f"the metrics are at {PATH}\n", method)
        of_fronts = "".join(_of_fronts(self._fronts))  # here, where they count; the store looks at the disk
        async with self._at_the_store:
            of_store = await asyncio.to_thread(lambda: "".join(_of_store(self._store)))
        return _http("200 OK", of_fronts + of_store, method)


def _http(status: str, body: str, method: str) -> bytes:
    content = body.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (content if method != "HEAD" else b"")


def _of_fronts(fronts: Sequence[Front]) -> Iterator[str]:
    for front in fronts:
        for name, value in front.status().items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                kind = _kind(front, name)
                suffix = "_total" if kind == "counter" else ""
                yield _metric(f"timestone_{front.name}_{name}{suffix}", kind, [({}, value)])


def _kind(front: Front, name: str) -> str:
    if not isinstance(front, Counting):
        return "untyped"
    return "gauge" if name in front.gauges else "counter"


def _of_store(store: Store) -> Iterator[str]:
    yield _metric("timestone_build_info", "gauge", [({"version": timestone_version()}, 1)])
    try:
        yield _metric("timestone_store_free_bytes", "gauge", [({}, store.files.free_bytes(store.path))])
        logs = [store.log(*log, create=False) for log in store.log_names()]
        where = [{"log": log.name, "partition": str(log.partition)} for log in logs]
        for name in ("start_offset", "end_offset", "synced_offset"):
            values = [(labels, getattr(log, name)) for labels, log in zip(where, logs, strict=True)]
            yield _metric(f"timestone_log_{name}", "gauge", values)
        lags = [(labels, lag) for labels, log in zip(where, logs, strict=True) for lag in log.lags()]
        for name in ("lag", "missed"):
            values = [({**labels, "reader": lag.reader.name}, getattr(lag, name)) for labels, lag in lags]
            yield _metric(f"timestone_reader_{name}", "gauge", values)
    except (OSError, TimestoneError) as error:
        _log.warning("the metrics lack what the store cannot say: %s", error)


def _metric(name: str, kind: str, samples: Sequence[tuple[dict[str, str], float]]) -> str:
    if not samples:
        return ""
    lines = [f"# TYPE {name} {kind}"]
    for labels, value in samples:
        written = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        lines.append(f"{name}{{{written}}} {value}" if written else f"{name} {value}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
