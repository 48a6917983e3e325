"""Requests that are malformed or do not end, over raw sockets."""

import socket
from pathlib import Path

import pytest

from tests.console.test_serving import address, exchanged, serving
from timestone_console.http import deadlines

__all__ = ["address"]

HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
LOGIN = b"POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
MALFORMED = [
    # Lines.
    b"GET / HTTP/1.1\nHost: localhost\n\n\x00",
    b"GET / HTTP/1.1\r\nHost: localhost\n\r\n",
    b"GET / HTTP/1.1\rHost: localhost\r\r\r\n\r\n",
    b"GET / HTTP/1.1\r\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\n\r\nHost: localhost\r\n\r\n",
    b"\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    # The first line.
    b"GET /\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET  / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1 \r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1 x\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.2\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1\r\nHost: localhost\r\n\r\n",
    b"GET / http/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/11\r\nHost: localhost\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"G\x01T / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"G(T / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /\x7f HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /a b HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b" GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello\r\n\r\n",
    # Headers.
    b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\n Host: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nA: b\r\n\r\n",
    HEAD + b"A: b\x00c\r\n\r\n",
    HEAD + b"A: b\rc\r\n\r\n",
    HEAD + b"A: b\nc\r\n\r\n",
    HEAD + b"A\x00: b\r\n\r\n",
    HEAD + b"A\xff: b\r\n\r\n",
    HEAD + b"A b: c\r\n\r\n",
    HEAD + b"A\t: c\r\n\r\n",
    HEAD + b"(A): c\r\n\r\n",
    HEAD + b": empty\r\n\r\n",
    HEAD + b"no colon\r\n\r\n",
    HEAD + b"X: " + b"x" * (17 << 10) + b"\r\n\r\n",
    HEAD + b"x: y\r\n" * 4000 + b"\r\n",
    b"GET /" + b"x" * (17 << 10) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    # Lengths.
    LOGIN + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    LOGIN + b"Content-Length: 3, 4\r\n\r\nabcd",
    LOGIN + b"Content-Length: -1\r\n\r\n",
    LOGIN + b"Content-Length: +1\r\n\r\na",
    LOGIN + b"Content-Length: 0x1\r\n\r\na",
    LOGIN + b"Content-Length: 1 1\r\n\r\na",
    LOGIN + b"Content-Length: 1.0\r\n\r\na",
    LOGIN + b"Content-Length:\r\n\r\na",
    LOGIN + b"Content-Length: \xb2\r\n\r\na",
    LOGIN + b"Content-Length: " + b"9" * 40 + b"\r\n\r\na",
    # Transfer codings.
    LOGIN + b"Transfer-Encoding: gzip\r\n\r\n",
    LOGIN + b"Transfer-Encoding: chunked, identity\r\n\r\n",
    LOGIN + b"Transfer-Encoding: identity\r\n\r\n",
    LOGIN + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    LOGIN + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    LOGIN + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    LOGIN + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    LOGIN + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
]


@pytest.mark.slow
def test_malformed_request_is_refused_and_the_connection_closed(tmp_path: Path) -> None:
    with serving(tmp_path, idle_s=2) as address:
        for request in MALFORMED:
            answer = exchanged(address, request, closes=False)
            assert answer.startswith(b"HTTP/1.1 4"), (request[:200], answer[:200])
            assert b"default-src 'none'" in answer and answer.count(b"HTTP/1.1 ") == 1, request[:200]
            assert exchanged(address, HEAD + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200 OK")


def test_requests_that_are_sent_together_are_not_answered(address: tuple[str, int]) -> None:
    whole = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert exchanged(address, whole * 2).count(b"HTTP/1.1 200") <= 1


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "HEAD_S", 0.1)
    monkeypatch.setattr(deadlines, "BODY_S", 0.1)


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: loc",
        b"POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
    ],
)
def test_request_that_does_not_end_is_closed(quick: None, address: tuple[str, int], begun: bytes) -> None:
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(begun)
        with_answer = connection.recv(65_536)
        assert with_answer == b"" or b"invalid-request" in with_answer


def test_connections_that_ask_nothing_make_room_for_one_that_does(
    monkeypatch: pytest.MonkeyPatch, address: tuple[str, int]
) -> None:
    monkeypatch.setattr(deadlines, "CONNECTION_COUNT", 4)
    idle = [socket.create_connection(address, timeout=60) for _ in range(20)]
    try:
        answer = exchanged(address, b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 OK")
    finally:
        for connection in idle:
            connection.close()
