from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from tests.support.waiting import wait_for
from timestone_bench.console.browsing import Browser, Visit, Visitors, page_bytes
from timestone_bench.console.pages import SHELL, STREAM, Ask
from timestone_bench.errors import BenchmarkError

FILES = {
    "/": b'<link href="/style.css"><script src="/main.js"></script>',
    "/style.css": b"c" * 1000,
    "/main.js": b"import './lib.js';",
    "/lib.js": b"l" * 2000,
    "/pages/topics.js": b"import '../lib.js';",
    **{one.path: b"{}" for one in SHELL},
    "/call": b"r" * 5000,
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path == STREAM:
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(b"event: figures\n" * 1000)
            return
        content = FILES.get(self.path, b"")
        self.send_response(200 if content else 404)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    Handler.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_page_weighs_its_files_once_and_a_reply_to_each_call(address: str) -> None:
    with closing(Browser(address)) as browser:
        size = page_bytes(browser, "topics", [Ask("/call", 1)])
    content = sum(map(len, FILES.values()))
    assert content < size < content + 200 * len(FILES)


def test_reply_that_is_an_error_ends_the_benchmark(address: str) -> None:
    with closing(Browser(address)) as browser, pytest.raises(BenchmarkError, match="answered /gone with 404"):
        browser.get("/gone")
    Handler.asked.clear()
    with (
        pytest.raises(BenchmarkError, match="a browser failed"),
        Visitors(address, [Visit([Ask("/gone", 60)])]),
    ):
        wait_for(lambda: "/gone" in Handler.asked)


def test_visitors_ask_again_and_again_and_read_a_stream_each(address: str) -> None:
    with Visitors(address, [Visit([Ask("/call", 0.01)])] * 2):
        wait_for(lambda: Handler.asked.count("/call") > 5 and Handler.asked.count(STREAM) == 2)
