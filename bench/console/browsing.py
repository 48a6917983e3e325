"""Browsers of the console, as far as it notices them: connections that ask as pages do, and streams that are read."""

import heapq
import http.client
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, Self

from ..errors import BenchmarkError
from .pages import SHELL, STREAM, Ask, linked

_TIMEOUT_S = 60.0


class Browser:
    """One connection, kept open. One thread."""

    def __init__(self, address: str) -> None:
        """address: HOST:PORT of a console."""
        host, _, port = address.rpartition(":")
        self._connection = http.client.HTTPConnection(host, int(port), timeout=_TIMEOUT_S)

    def get(self, path: str, *, compressed: bool = True) -> tuple[bytes, int]:
        """Return the content of a reply, and the bytes that were sent. Raises BenchmarkError, OSError."""
        self._connection.request("GET", path, headers={"Accept-Encoding": "gzip"} if compressed else {})
        reply = self._connection.getresponse()
        content = reply.read()
        if reply.status != 200:
            raise BenchmarkError(f"the console answered {path} with {reply.status}: {content[:200]!r}")
        head = sum(len(name) + len(value) + 4 for name, value in reply.getheaders())
        return content, len(content) + head

    def stream(self, path: str = STREAM) -> http.client.HTTPResponse:
        """Return a stream, to read line by line; the connection serves nothing else then."""
        self._connection.request("GET", path)
        return self._connection.getresponse()

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


def page_bytes(browser: Browser, module: str, asks: Sequence[Ask]) -> int:
    """Return the bytes that a first visit of a page transfers: its files, and one reply to each of its calls."""
    sizes: dict[str, int] = {}
    waiting = {"/", f"/pages/{module}.js"}
    while waiting:
        path = waiting.pop()
        _, sizes[path] = browser.get(path)
        if path == "/" or path.endswith(".js"):
            content, _ = browser.get(path, compressed=False)
            waiting |= linked(path, content.decode()) - sizes.keys()
    return sum(sizes.values()) + sum(browser.get(one.path)[1] for one in (*SHELL, *asks))


class Visit(NamedTuple):
    """Pages that a browser has open: their calls, and what its stream is of."""

    asks: Sequence[Ask]
    stream: str = STREAM


class Visitors:
    """Browsers that have pages open while the block runs: each a thread that asks, and one that reads its stream."""

    def __init__(self, address: str, visits: Sequence[Visit]) -> None:
        self._address = address
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._kept, args=(run, visit))
            for run in (self._ask, self._read)
            for visit in visits
        ]
        self._failures: list[BaseException] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Raises BenchmarkError if a reply was not that of a page."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        if self._failures and error[0] is None:
            raise BenchmarkError(f"a browser failed: {self._failures[0]}")

    def _kept(self, run: Callable[[Browser, Visit], None], visit: Visit) -> None:
        browser = Browser(self._address)
        try:
            run(browser, visit)
        except (BenchmarkError, OSError, http.client.HTTPException) as error:
            self._failures.append(error)
        finally:
            with suppress(OSError):
                browser.close()

    def _ask(self, browser: Browser, visit: Visit) -> None:
        asks = [*SHELL, *visit.asks]
        due = [(0.0, number) for number in range(len(asks))]
        while True:
            due_s, number = due[0]
            if self._ended.wait(max(0.0, due_s - time.monotonic())):
                return
            browser.get(asks[number].path)
            heapq.heapreplace(due, (time.monotonic() + asks[number].every_s, number))

    def _read(self, browser: Browser, visit: Visit) -> None:
        reply = browser.stream(visit.stream)
        while not self._ended.is_set():
            reply.readline()  # there are some each second
