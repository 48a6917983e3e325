"""The page that Prometheus reads, over a real store and a real front."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar

import pytest

import timestone
from tests.cli.line_front import LineFront, LineSettings
from timestone_cli.server.metrics import MetricsPage


class CountingFront(LineFront):
    gauges: ClassVar[frozenset[str]] = frozenset({"clients", "load"})

    def status(self) -> dict[str, object]:
        return {
            "address": "127.0.0.1:1",
            "clients": 3,
            "load": 0.5,
            "lines": 7,
            "open": True,
            "limits": {"clients": 5},
        }


async def ask(page: MetricsPage, request: bytes) -> tuple[str, str]:
    """The status line of the answer, and its body; nothing and nothing when the page hangs up."""
    host, _, port = page.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    try:
        answer = await asyncio.wait_for(reader.read(), 60)
    except ConnectionError:
        # So the system tells it to whoever has sent more than was read by then.
        answer = b""
    writer.close()
    head, _, body = answer.decode().partition("\r\n\r\n")
    return head.split("\r\n")[0], body


def on_page(
    tmp_path: Path, visit: Callable[[MetricsPage], Awaitable[None]], store: timestone.Store | None = None
) -> None:
    async def run(open_store: timestone.Store) -> None:
        front = CountingFront(open_store, LineSettings(), log=logging.getLogger("test"))
        page = MetricsPage(open_store, [front], "127.0.0.1", 0)
        await page.start()
        try:
            await visit(page)
        finally:
            await page.stop()

    with timestone.open(tmp_path / "data", min_free_bytes=0) as opened:
        log = opened.log("telemetry")
        log.append_many([b"a", b"b", b"c"])
        with log.reader(name='bill"ing') as reader:
            reader.commit(1)
        asyncio.run(run(opened))


def test_page_says_what_fronts_and_store_count(tmp_path: Path) -> None:
    async def visit(page: MetricsPage) -> None:
        assert page.describe() == [f"metrics on http://{page.address}/metrics"]
        status, body = await ask(page, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert status == "HTTP/1.1 200 OK"
        lines = body.splitlines()
        assert [line for line in lines if "timestone_line_" in line] == [
            "# TYPE timestone_line_clients gauge",
            "timestone_line_clients 3",
            "# TYPE timestone_line_load gauge",
            "timestone_line_load 0.5",
            "# TYPE timestone_line_lines_total counter",
            "timestone_line_lines_total 7",
        ]
        for sample in (
            'timestone_log_start_offset{log="telemetry",partition="0"} 0',
            'timestone_log_end_offset{log="telemetry",partition="0"} 3',
            'timestone_log_synced_offset{log="telemetry",partition="0"} 3',
            'timestone_reader_lag{log="telemetry",partition="0",reader="bill\\"ing"} 2',
            'timestone_reader_missed{log="telemetry",partition="0",reader="bill\\"ing"} 0',
        ):
            assert sample in lines
        free = next(line for line in lines if line.startswith("timestone_store_free_bytes "))
        assert int(free.split()[1]) > 0

    on_page(tmp_path, visit)


def test_each_sample_stands_behind_the_type_of_its_metric_and_each_type_once(tmp_path: Path) -> None:
    async def visit(page: MetricsPage) -> None:
        _, body = await ask(page, b"GET /metrics HTTP/1.0\r\n\r\n")
        assert body.endswith("\n")
        types: list[str] = []
        for line in body.splitlines():
            if line.startswith("# TYPE "):
                types.append(line.split()[2])
            else:
                assert line.split("{")[0].split()[0] == types[-1]
        assert len(types) == len(set(types)) > 5

    on_page(tmp_path, visit)


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        (b"GET / HTTP/1.1", "HTTP/1.1 404 Not Found", "the metrics are at /metrics\n"),
        (b"POST /metrics HTTP/1.1", "HTTP/1.1 405 Method Not Allowed", "only GET and HEAD\n"),
        (b"HEAD /metrics HTTP/1.1", "HTTP/1.1 200 OK", ""),
        (b"\x16\x03\x01\xff", "HTTP/1.1 405 Method Not Allowed", "only GET and HEAD\n"),
    ],
)
def test_other_requests_are_told_so(tmp_path: Path, request_line: bytes, status: str, body: str) -> None:
    async def visit(page: MetricsPage) -> None:
        assert await ask(page, request_line + b"\r\n\r\n") == (status, body)

    on_page(tmp_path, visit)


def test_request_without_end_gets_no_answer_and_harms_nobody(tmp_path: Path) -> None:
    async def visit(page: MetricsPage) -> None:
        assert await ask(page, b"GET " + b"x" * 100_000) == ("", "")
        assert (await ask(page, b"GET /metrics HTTP/1.1\r\n\r\n"))[0] == "HTTP/1.1 200 OK"

    on_page(tmp_path, visit)


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without end: a request goes because another needs its place, however slow the test is."""
    monkeypatch.setattr("timestone_cli.server.metrics._REQUEST_S", 3600)


@pytest.mark.usefixtures("patience")
def test_requests_that_never_end_keep_nobody_out_and_end_with_the_page(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def visit(page: MetricsPage) -> None:
        host, _, port = page.address.rpartition(":")
        unfinished = [await asyncio.open_connection(host, int(port)) for _ in range(101)]
        assert (await ask(page, b"GET /metrics HTTP/1.1\r\n\r\n"))[0] == "HTTP/1.1 200 OK"
        assert await asyncio.wait_for(unfinished[0][0].read(), 60) == b"", "the oldest made room"
        await page.stop()
        assert [await asyncio.wait_for(reader.read(), 60) for reader, _ in unfinished] == [b""] * 101

    on_page(tmp_path, visit)
    assert caplog.text == ""


@pytest.mark.usefixtures("patience")
def test_however_many_come_at_once_a_hundred_stay(tmp_path: Path) -> None:
    async def visit(page: MetricsPage) -> None:
        host, _, port = page.address.rpartition(":")
        asked = []
        for _ in range(3):  # the system takes a hundred connections that nobody has accepted yet
            for _ in range(100):
                asked.append(socket.create_connection((host, int(port))))
                asked[-1].setblocking(False)
            assert (await ask(page, b"GET /metrics HTTP/1.1\r\n\r\n"))[0] == "HTTP/1.1 200 OK"
        async with asyncio.timeout(60):
            for one in asked[:-99]:
                assert await asyncio.get_running_loop().sock_recv(one, 1) == b"", "the oldest made room"
        for one in asked[-99:]:
            with pytest.raises(BlockingIOError):
                one.recv(1)
        for one in asked:
            one.close()

    on_page(tmp_path, visit)


def test_store_that_cannot_say_all_says_the_rest(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        store = timestone.open(tmp_path / "data", min_free_bytes=0)
        store.log("telemetry")
        page = MetricsPage(store, [], "127.0.0.1", 0)
        await page.start()
        store.close()
        status, body = await ask(page, b"GET /metrics HTTP/1.1\r\n\r\n")
        await page.stop()
        assert status == "HTTP/1.1 200 OK"
        assert "timestone_build_info" in body
        assert "timestone_log_end_offset" not in body

    asyncio.run(run())
    assert "the metrics lack what the store cannot say" in caplog.text


def test_address_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken, timestone.open(tmp_path / "data") as store:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use$"):
            asyncio.run(MetricsPage(store, [], "127.0.0.1", port).start())
