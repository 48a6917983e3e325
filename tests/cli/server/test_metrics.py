"""The page of metrics and health, over a real store and a real front."""

import asyncio
import gc
import json
import logging
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import pytest
import uvloop
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as plain_families

import timestone
from tests.cli.line_front import LineFront, LineSettings
from timestone.metrics.histogram import Histogram
from timestone.metrics.metric import Metric, by_label, metric
from timestone_cli.server.collection import Collection
from timestone_cli.server.metrics import MetricsPage


def durations(*durations_ns: int) -> Histogram:
    histogram = Histogram()
    for duration_ns in durations_ns:
        histogram.observe(duration_ns)
    return histogram


class MeasuredFront(LineFront):
    why_not: str | None = None

    def metrics(self) -> Sequence[Metric]:
        return [
            metric("clients", "gauge", "Clients\nnow.", 3),
            metric("load", "gauge", 'Load "of" it.', 0.5),
            by_label("ends", "Ends.", "reason", {"lost": 7, 'a"\n\\b': 1}),
            metric("wait_seconds", "histogram", "Waits.", durations(16_000, 16_001, 10**12)),
        ]

    def checks(self) -> Mapping[str, str | None]:
        return {"listening": self.why_not}


OPENMETRICS = b"Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5\r\n"


async def ask(page: MetricsPage, request: bytes) -> tuple[str, str]:
    """The status line of the answer, and its body; nothing and nothing when the page hangs up."""
    host, _, port = page.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    try:
        answer = await asyncio.wait_for(reader.read(), 60)
    except ConnectionError:
        # So the system reports it to a client that has sent more than was read by then.
        answer = b""
    writer.close()
    head, _, body = answer.decode().partition("\r\n\r\n")
    return head.split("\r\n")[0], body


def on_page(
    tmp_path: Path,
    visit: Callable[[MetricsPage], Awaitable[None]],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    async def run(open_store: timestone.Store) -> None:
        front = MeasuredFront(open_store, LineSettings(), log=logging.getLogger("test"))
        page = MetricsPage(Collection(open_store, [front]), "127.0.0.1", 0)
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
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(run(opened))


def test_page_says_what_fronts_and_store_count(tmp_path: Path) -> None:
    async def visit(page: MetricsPage) -> None:
        assert page.describe() == [
            f"metrics on http://{page.address}/metrics, health on /health/live, /health/ready"
        ]
        status, body = await ask(page, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert status == "HTTP/1.1 200 OK"
        lines = body.splitlines()
        assert [line for line in lines if "timestone_line_" in line][:8] == [
            "# HELP timestone_line_clients Clients\\nnow.",
            "# TYPE timestone_line_clients gauge",
            "timestone_line_clients 3",
            '# HELP timestone_line_load Load "of" it.',
            "# TYPE timestone_line_load gauge",
            "timestone_line_load 0.5",
            "# HELP timestone_line_ends_total Ends.",
            "# TYPE timestone_line_ends_total counter",
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


@pytest.mark.parametrize("openmetrics", [False, True])
def test_the_parser_of_prometheus_client_reads_the_same_from_both_formats(
    tmp_path: Path, openmetrics: bool
) -> None:
    async def visit(page: MetricsPage) -> None:
        accept = OPENMETRICS if openmetrics else b""
        _, body = await ask(page, b"GET /metrics HTTP/1.1\r\n" + accept + b"\r\n")
        assert body.endswith("# EOF\n") == openmetrics
        families = list((openmetrics_families if openmetrics else plain_families)(body))
        names = [family.name for family in families]
        assert len(set(names)) == len(names) > 10
        assert all(family.documentation for family in families)
        by_name = {family.name: family for family in families}
        ends = by_name["timestone_line_ends"]
        assert ends.type == "counter"
        assert {sample.labels["reason"]: sample.value for sample in ends.samples} == {"lost": 7, 'a"\n\\b': 1}
        waits = by_name["timestone_line_wait_seconds"]
        counts = {sample.labels.get("le", sample.name): sample.value for sample in waits.samples}
        assert waits.type == "histogram"
        assert (counts["1.6e-05"], counts["3.2e-05"], counts["+Inf"]) == (1, 2, 3)
        assert counts["timestone_line_wait_seconds_sum"] == pytest.approx(1000.000032001)
        if openmetrics:
            assert waits.unit == "seconds"
            assert by_name["timestone_build"].type == "info"

    on_page(tmp_path, visit)


def test_an_endpoint_of_health_names_each_check_and_the_reason_why_it_fails(tmp_path: Path) -> None:
    async def health(page: MetricsPage, path: str) -> tuple[str, dict[str, dict[str, object]]]:
        status, body = await ask(page, f"GET {path} HTTP/1.1\r\n\r\n".encode())
        document = json.loads(body)
        assert document["ok"] == (status == "HTTP/1.1 200 OK")
        return status, document["checks"]

    async def visit(page: MetricsPage) -> None:
        assert await health(page, "/health/live") == ("HTTP/1.1 200 OK", {"event_loop": {"ok": True}})
        passed = {
            name: {"ok": True} for name in ("store_open", "free_space", "logs_writable", "line_listening")
        }
        assert await health(page, "/health/ready") == ("HTTP/1.1 200 OK", passed)
        MeasuredFront.why_not = "it does not run"
        try:
            status, checks = await health(page, "/health/ready")
        finally:
            MeasuredFront.why_not = None
        assert status == "HTTP/1.1 503 Service Unavailable"
        assert checks["line_listening"] == {"ok": False, "reason": "it does not run"}

    on_page(tmp_path, visit)


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        (
            b"GET / HTTP/1.1",
            "HTTP/1.1 404 Not Found",
            "the metrics are at /metrics, the health is at /health/live and /health/ready\n",
        ),
        (b"POST /metrics HTTP/1.1", "HTTP/1.1 405 Method Not Allowed", "only GET and HEAD\n"),
        (b"HEAD /metrics HTTP/1.1", "HTTP/1.1 200 OK", ""),
        (b"\x16\x03\x01\xff", "HTTP/1.1 405 Method Not Allowed", "only GET and HEAD\n"),
    ],
)
def test_other_requests_get_an_error_status(
    tmp_path: Path, request_line: bytes, status: str, body: str
) -> None:
    async def visit(page: MetricsPage) -> None:
        assert await ask(page, request_line + b"\r\n\r\n") == (status, body)

    on_page(tmp_path, visit)


def test_an_endless_request_gets_no_answer_and_does_not_delay_others(tmp_path: Path) -> None:
    async def visit(page: MetricsPage) -> None:
        assert await ask(page, b"GET " + b"x" * 100_000) == ("", "")
        assert (await ask(page, b"GET /metrics HTTP/1.1\r\n\r\n"))[0] == "HTTP/1.1 200 OK"

    on_page(tmp_path, visit)


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without end: a request goes because another needs its place, however slow the test is."""
    monkeypatch.setattr("timestone_cli.server.metrics._REQUEST_S", 3600)


@pytest.mark.usefixtures("patience")
def test_endless_requests_do_not_keep_others_out_and_end_with_the_page(
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
        for _ in range(3):  # the system takes a hundred connections before they are accepted
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


def test_client_that_hangs_up_before_its_answer_leaves_no_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def visit(page: MetricsPage) -> None:
        host, _, port = page.address.rpartition(":")
        with socket.create_connection((host, int(port))) as one:
            async with page._collection.at_the_store:
                one.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                await asyncio.sleep(0.1)
                one.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )  # ends with a reset
                one.close()
                await asyncio.sleep(0.1)
        async with asyncio.timeout(60):
            while page._answers:
                await asyncio.sleep(0.01)
        gc.collect()  # asyncio reports an exception that nothing has taken

    on_page(tmp_path, visit, loop_factory=uvloop.new_event_loop)
    assert caplog.text == ""


def test_store_that_cannot_say_all_says_the_rest(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        store = timestone.open(tmp_path / "data", min_free_bytes=0)
        store.log("telemetry")
        page = MetricsPage(Collection(store, []), "127.0.0.1", 0)
        await page.start()
        store.close()
        status, body = await ask(page, b"GET /metrics HTTP/1.1\r\n\r\n")
        await page.stop()
        assert status == "HTTP/1.1 200 OK"
        assert "timestone_build_info" in body
        assert "timestone_log_end_offset" not in body

    asyncio.run(run())
    assert "the metrics of the store are incomplete" in caplog.text


def test_address_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken, timestone.open(tmp_path / "data") as store:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use$"):
            asyncio.run(MetricsPage(Collection(store, []), "127.0.0.1", port).start())
