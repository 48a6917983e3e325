"""An HTTP proxy on loopback in front of a real S3 server, which spoils chosen answers.

Signatures cover the address that the client has connected to, so requests are passed on with their headers as they
are."""

import contextlib
import http.client
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Fault = str
"""lost: carried out, then no answer. repeated: carried out twice. 503, 507: refused. slow: a late answer. truncated:
half of the body. wrong etag: another entity tag. expired, skewed: refused credentials, and a refused clock.
overwrites: success for an object that exists already and was to be made."""

_ERRORS = {
    "503": (503, "SlowDown"),
    "507": (507, "InsufficientStorage"),
    "expired": (400, "ExpiredToken"),
    "skewed": (403, "RequestTimeTooSkewed"),
}
_SLOW_S = 0.3


class S3Proxy:
    """A running proxy. `choose` says which fault a request meets, by its number, method and path; None for none."""

    def __init__(self, port: int) -> None:
        self.requests: list[str] = []
        self.met: list[Fault] = []
        self.choose: Callable[[int, str, str], Fault | None] = lambda number, method, path: None
        self.expired_key: str | None = None
        """Requests that are signed with it are refused."""
        self._lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                proxy._answer(self, port)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, handler: BaseHTTPRequestHandler, port: int) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        with self._lock:
            number = len(self.requests)
            self.requests.append(f"{handler.command} {handler.path}")
            fault = self.choose(number, handler.command or "", handler.path)
            if self.expired_key and f"Credential={self.expired_key}/" in handler.headers["Authorization"]:
                fault = "expired"
            if fault is not None:
                self.met.append(fault)
        if fault in _ERRORS:
            status, code = _ERRORS[fault]
            text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>by the test</Message></Error>"
            self._send(handler, status, [("Content-Type", "application/xml")], text.encode())
            return
        if fault == "slow":
            time.sleep(_SLOW_S)
        status, headers, data = self._pass_on(handler, port, body)
        if fault == "repeated":
            status, headers, data = self._pass_on(handler, port, body)
        if fault == "overwrites" and status == 412:
            status, headers, data = 200, [("ETag", '"0123"')], b""
        if fault == "lost":
            handler.close_connection = True
            return
        if fault == "wrong etag":
            headers = [(name, '"0123"' if name.lower() == "etag" else value) for name, value in headers]
        if fault == "truncated":
            handler.close_connection = True
        self._send(handler, status, headers, data, sent=len(data) // 2 if fault == "truncated" else None)

    @staticmethod
    def _pass_on(
        handler: BaseHTTPRequestHandler, port: int, body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.putrequest(
                handler.command or "", handler.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in handler.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    @staticmethod
    def _send(
        handler: BaseHTTPRequestHandler,
        status: int,
        headers: list[tuple[str, str]],
        data: bytes,
        sent: int | None = None,
    ) -> None:
        handler.send_response_only(status)
        length = dict((name.lower(), value) for name, value in headers).get("content-length")
        for name, value in headers:
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                handler.send_header(name, value)
        is_head = handler.command == "HEAD"
        handler.send_header("Content-Length", str(length if is_head and length else len(data)))
        handler.end_headers()
        if not is_head:
            handler.wfile.write(data if sent is None else data[:sent])


@contextlib.contextmanager
def s3_proxy(port: int) -> Iterator[S3Proxy]:
    """A proxy for the block. port: of the server."""
    proxy = S3Proxy(port)
    try:
        yield proxy
    finally:
        proxy.stop()
