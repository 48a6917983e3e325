"""Requests to servers that answer in each way that HTTP/1.1 allows, and in some that it does not."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from timestone_cluster.etcd.http import HttpConnections, NotConnected, words_of

_PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"
_CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\nTrailer: 1\r\n\r\n"
)


@asynccontextmanager
async def serving(answer: bytes, *, ends: bool = False) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Give one answer to each request; the requests stand in the list, after an empty one for each connection."""
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(b"")
        while head := await reader.readuntil(b"\r\n\r\n"):
            requests.append(head + await reader.readexactly(4))
            writer.write(answer)
            if ends:
                break
        writer.close()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    listener = await asyncio.start_server(served, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}", requests
    finally:
        listener.close()


async def _posted(http: HttpConnections, url: str, token: str = "") -> tuple[int, bytes]:
    async with asyncio.timeout(20), http.post(url, "/v3/x", b"body", token) as answer:
        return answer.status, b"".join([piece async for piece in answer.pieces()])


def test_connection_takes_the_next_request_when_an_answer_was_read_to_its_end() -> None:
    async def run(answer: bytes) -> None:
        async with serving(answer) as (url, requests):
            http = HttpConnections(None, 3)
            for token in ("", "secret"):
                assert await _posted(http, url, token) == (200, b"abc")
            host = url.removeprefix("http://")
            assert requests == [
                b"",
                f"POST /v3/x HTTP/1.1\r\nHost: {host}\r\nContent-Length: 4\r\n\r\nbody".encode(),
                f"POST /v3/x HTTP/1.1\r\nHost: {host}\r\nAuthorization: secret\r\n"
                "Content-Length: 4\r\n\r\nbody".encode(),
            ]
            http.close()

    for answer in (_PLAIN, _CHUNKED):
        asyncio.run(run(answer))


def test_each_request_has_a_connection_of_its_own_when_the_answer_ends_it() -> None:
    async def run(answer: bytes, ends: bool) -> None:
        async with serving(answer, ends=ends) as (url, requests):
            http = HttpConnections(None, 3)
            for _ in range(3):
                assert await _posted(http, url) == (200, b"abc")
                await asyncio.sleep(0.05)
            assert requests.count(b"") == 3
            http.close()

    asyncio.run(run(_PLAIN, True))
    asyncio.run(run(b"HTTP/1.1 200 OK\r\n\r\nabc", True))
    asyncio.run(run(_PLAIN.replace(b"\r\n\r\n", b"\r\nconnection: Close\r\n\r\n"), False))


def test_requests_at_the_same_time_have_connections_of_which_a_few_stay() -> None:
    async def run() -> None:
        async with serving(_PLAIN) as (url, requests):
            http = HttpConnections(None, 3)
            assert await asyncio.gather(*(_posted(http, url) for _ in range(20))) == 20 * [(200, b"abc")]
            assert requests.count(b"") == 20
            await asyncio.gather(*(_posted(http, url) for _ in range(20)))
            assert 20 < requests.count(b"") <= 40 - 4
            http.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 many OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: three\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\n" + 200 * b"A: b\r\n" + b"\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + (1 << 17) * b"b" + b"\r\n\r\n",
        _CHUNKED[:-3],
        _CHUNKED.replace(b"2;x=y", b"zz"),
        _CHUNKED.replace(b"2;x=y", b"4"),
        _CHUNKED.replace(b"2;x=y", b"-2"),
        _CHUNKED.replace(b"ab", b"abc"),
    ],
)
def test_answer_is_an_error_when_it_is_malformed_or_too_long_or_cut(answer: bytes) -> None:
    async def run() -> None:
        async with serving(answer, ends=True) as (url, _):
            with pytest.raises((OSError, EOFError, ValueError)) as raised:
                await _posted(HttpConnections(None, 3), url)
            assert not isinstance(raised.value, NotConnected | TimeoutError)

    asyncio.run(run())


def test_answer_is_an_error_when_it_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with serving(b"HTTP/1.1 200 OK\r\n") as (url, _):
            with pytest.raises(TimeoutError):
                await _posted(HttpConnections(None, 3), url)

    monkeypatch.setattr("timestone_cluster.etcd.http._HEAD_S", 0.1)
    asyncio.run(run())


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError(), "no answer in time"),
        (ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)"), "Connection refused"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (EOFError("the connection has ended"), "the connection has ended"),
        (EOFError(), "EOFError"),
    ],
)
def test_failed_request_says_why_in_words(error: Exception, words: str) -> None:
    assert words_of(error) == words


def test_nothing_was_sent_when_there_is_no_connection() -> None:
    async def run(url: str) -> None:
        with pytest.raises(NotConnected, match=r"127\.0\.0\.1:1"):
            await _posted(HttpConnections(None, 3), url)

    for url in ("http://127.0.0.1:1", "https://127.0.0.1:1"):
        asyncio.run(run(url))
